"""What tpuwatch itself says beside the command's output."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """One sentence on standard error. If that cannot be written, it is no reason to fail."""
    try:
        sys.stderr.write(f"tpuwatch: {text}\n")
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        return
