"""A soak test: the node side of the daemon against a simulated cloud on which everything goes wrong, by simulated time.

`python -m soak` is the whole of it, `tests/test_soak.py` the quick part.
"""
