"""Messages of tpuwatch itself beside the command's output."""

from __future__ import annotations

import sys


def print_message(text: str) -> None:
    """Print one sentence on standard error. A failure to write it is ignored."""
    try:
        sys.stderr.write(f"tpuwatch: {text}\n")
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        return
