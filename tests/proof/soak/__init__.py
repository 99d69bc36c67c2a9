"""A soak test: the node side of the daemon against a simulated cloud on which everything goes wrong, by simulated time.

`python -m tests.proof.soak` is the whole of it, `tests/proof/test_soak.py` the quick part.
"""
