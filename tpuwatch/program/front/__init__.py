"""Compiles a program for a TPU that is not here: JAX, Keras on JAX, a tf.function, PyTorch by torchax, or StableHLO.

In: a JSON object that says what to compile, and one for each trial.
Out: a JSON object for each stage and trial.
Never: imports anything else of tpuwatch, or runs the program on a TPU.

The interpreter that has JAX runs `__main__.py` by its path, and has no tpuwatch: so these files import each other by
relative imports, and nothing else of tpuwatch. They need Python 3.10 and JAX 0.4.31 or newer.
The first argument is a JSON object that says what to compile; standard input has a JSON object for each trial, a line
each. A JSON object a line is written to the descriptor `report`: {"stage": NAME} as it goes on ("ready" when it waits
for a trial), {"kernels": {...}} for the ops of a TensorFlow graph, {"compiling": {...}} with what is known of a trial
before it is compiled, {"trial": {...}} with the rest, {"error": {...}} when it ends for one.
"""
