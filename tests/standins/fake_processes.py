"""Processes for tests, each in a container: the machine calls them by other numbers than they themselves do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.host.procfs import Process

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

OUTSIDE = 100_000  # what the machine adds to the number in the container


class FakeProcesses:
    """Processes that live as long as the test says: by the numbers that they know themselves by, when they started."""

    def __init__(self, *alive: tuple[int, float], sees_all: bool = True) -> None:
        self.alive = list(alive)
        self.looks = 0
        self._sees_all = sees_all

    def host_name(self) -> str:
        return "vm"

    def numbered(self, numbers: AbstractSet[int]) -> dict[int, list[Process]]:
        self.looks += 1
        found: dict[int, list[Process]] = {number: [] for number in numbers}
        for number, started in self.alive:
            if number in numbers:
                found[number].append(self.process(number, started))
        return found

    def sees_all(self) -> bool:
        return self._sees_all

    def is_there(self, process: Process) -> bool:
        return process in [self.process(*one) for one in self.alive]

    def environment(self, pid: int) -> dict[str, str]:
        return {"TPU_PREMAPPED_BUFFER_SIZE": "4294967296"} if pid > OUTSIDE else {}

    def read(self, name: str, limit: int) -> bytes:
        """A file below /proc: the cgroup of each process is named after it."""
        return f"0::/jobs/{name.partition('/')[0]}\n".encode()[:limit]

    @staticmethod
    def process(number: int, started: float) -> Process:
        """As the machine knows it, by another number."""
        return Process(OUTSIDE + number, int(100 * started), started)
