"""Messages of tpuwatch itself beside the command's output."""

from __future__ import annotations

import sys

from tpuwatch.core import printable_lines

PREFIX = "tpuwatch: "  # of each line; where the command's output is followed, such lines are not read


def print_message(text: str) -> None:
    """Print one sentence on standard error. A failure to write it is ignored."""
    try:
        sys.stderr.write(f"{PREFIX}{printable_lines(text)}\n")
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        return
