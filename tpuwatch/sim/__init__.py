"""A stand-in TPU VM: processes that write what libtpu and jobs write, for the demo, tests and benchmarks."""
