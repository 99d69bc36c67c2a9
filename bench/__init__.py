"""Benchmarks: how fast and how frugal tpuwatch is, as ratios to peers measured in the same run. `python -m bench --help`."""
