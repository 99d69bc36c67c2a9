"""Launches: the processes that initialise the TPU, put together from logs, /proc and the records of `tpuwatch exec`."""
