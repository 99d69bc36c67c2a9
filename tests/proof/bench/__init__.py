"""Benchmarks: speed, memory and processor time, against peers in the same run: `python -m tests.proof.bench --help`."""
