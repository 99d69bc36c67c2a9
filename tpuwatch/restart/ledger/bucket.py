"""What a ledger in a bucket and the client of that bucket tell each other. Imports none of Google's packages."""

from __future__ import annotations

from dataclasses import dataclass

from tpuwatch.restart.ledger.base import LedgerError


class StorageError(LedgerError):
    """A request failed: it was carried out or not. The message says what happened and what to do."""

    def __init__(self, message: str, *, passing: bool, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.passing = passing  # it may go well if it is made again
        self.retry_after = retry_after  # seconds, where the server said so


class PreconditionError(StorageError):
    """The object is not of the generation that was named."""


@dataclass(frozen=True, slots=True)
class Found:
    """An object as it was read."""

    generation: int
    content: bytes
