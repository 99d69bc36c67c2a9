"""Where records of restarts are kept: one small interface, and what may go wrong with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from tpuwatch.model import Fleet, RestartRecord, Target

# Ended records are kept of the so many nodes that were restarted last. No clock removes any.
KEPT_NODES: Final = 10_000


@dataclass(frozen=True, slots=True)
class Stored:
    """A record as it was read, with the version that a write must name. A version never comes twice."""

    record: RestartRecord
    version: int


@dataclass(frozen=True, slots=True)
class StoredFleet:
    """What there is of all nodes together, with the version that a write must name."""

    fleet: Fleet
    version: int  # 0: nothing has been written yet


class Ledger(Protocol):
    """Records by node, and one of the fleet. A method that does not know raises LedgerError, within its deadline."""

    def read(self, target: Target) -> Stored | None:
        """The node's record; None if it never had one."""

    def write(self, record: RestartRecord, version: int) -> Stored:
        """Store it, flushed to the disk, if the node's record still is `version` (0: there is none).

        Raises ConflictError if it is not. A LedgerError else may leave the write done or not: read again.
        """

    def records(self) -> list[Stored]:
        """The records of all nodes."""

    def fleet(self) -> StoredFleet:
        """What is kept of all nodes together."""

    def write_fleet(self, fleet: Fleet, version: int) -> StoredFleet:
        """Store it, as `write` does, and with the same errors."""

    def stamp(self) -> object:
        """Something that differs after a write by any process, for the price of a look at a file; None where only a
        reading tells.
        """

    def server_time(self) -> float | None:
        """The time by the ledger's server, as far as it has answered; None for a ledger without a server."""

    def purge(self) -> int:
        """Remove ended records but those of the KEPT_NODES nodes that were restarted last; how many. To be called now
        and then: reading and writing remove nothing.
        """

    def set_aside(self) -> bool:
        """Replace what is damaged, which is kept, by a new ledger; whether that was done."""

    def close(self) -> None:
        """Let go of files and connections."""
