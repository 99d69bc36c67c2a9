"""`tpuwatch preflight` with the real packages, in an environment of their own: JAX, libtpu, Keras, TensorFlow."""
