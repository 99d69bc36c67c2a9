"""`tpuwatch preflight` with the real packages: JAX, libtpu's compiler, Keras and TensorFlow, in an environment of their own."""
