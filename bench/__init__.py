"""Benchmarks: how fast and how frugal tpuwatch is, against peers in the same run. See `python -m bench --help`."""
