"""Writes numbered lines into a job's log: FILE COUNT LINES_PER_SECOND."""

from __future__ import annotations

import os
import sys
import time

_LETTERS = str.maketrans("0123456789", "abcdefghij")


def write(path: str, count: int, rate: float) -> None:
    """Each line by itself, as a job does. No two differ in digits alone: each is an event of its own."""
    os.umask(0o077)
    with open(path, "ab", buffering=0) as file:
        for number in range(1, count + 1):
            file.write(f"BOOTED-LINE {number} and {str(number).translate(_LETTERS)}\n".encode())
            time.sleep(1 / rate)


if __name__ == "__main__":
    write(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
