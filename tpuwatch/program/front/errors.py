"""What ends a run."""

from __future__ import annotations

from typing import Any


class StopError(Exception):
    """Ends the run with a reason: what `kind` of thing went wrong, and in which words."""

    def __init__(self, kind: str, message: str, kernels: Any = None) -> None:
        super().__init__(message)
        self.kind, self.kernels = kind, kernels
