"""Golden files: a test gives what is in its file; with TPUWATCH_UPDATE_GOLDEN=1 it writes the file again."""

from __future__ import annotations

import os
from pathlib import Path


def holds(file: Path, text: str) -> None:
    """That is what is in the file."""
    if os.environ.get("TPUWATCH_UPDATE_GOLDEN"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    assert text == file.read_text(), "if this change is meant, run the test with TPUWATCH_UPDATE_GOLDEN=1"
