"""Breaks things on purpose, and says what did not hold. `make chaos` does all of it (everything.py).

`python -m tests.proof.chaos` itself kills the daemon with SIGKILL, over and over, while logs are written, rotated,
renamed, copied and cut off under it. At the end every event must be in the store exactly once, none may be there
that nobody wrote, and the stored offsets must be the ends of the files.
"""
