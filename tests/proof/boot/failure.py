"""What does not hold."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
LOOK_SECONDS = 0.1


class Failed(Exception):  # noqa: N818 # it is a finding, and no error of this program
    """A check's finding, in a sentence."""


def expect(holds: object, otherwise: str) -> None:
    """Raises Failed with this sentence unless it holds."""
    if not holds:
        raise Failed(otherwise)


def until(look: Callable[[], T], seconds: float, what: str) -> T:
    """Look until there is something; what it is. Raises Failed after so many seconds without it."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        if time.monotonic() > deadline:
            raise Failed(f"not within {seconds:.0f} s: {what}")
        time.sleep(LOOK_SECONDS)
    return found
