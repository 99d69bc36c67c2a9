"""Which processes belong to TPU jobs, so that the kernel's kill of any other process is no fault of the node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tpuwatch.host import parse_groups

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tpuwatch.launches import LaunchTracker
    from tpuwatch.model import Launch

_KEPT_SECONDS: Final = 600.0  # after a process was last seen: the kernel's line on its end may be read late
_MAX_BYTES: Final = 1 << 14  # of /proc/PID/cgroup


class JobProcesses:
    """The processes that hold or held the TPU, those of launches, and their cgroups."""

    def __init__(self, tracker: LaunchTracker, read: Callable[[str, int], bytes]) -> None:
        """`read`: a file below /proc, so many bytes at most."""
        self._tracker = tracker
        self._read = read
        self._seen: dict[int, tuple[float, frozenset[str]]] = {}  # by pid: when last, and its cgroups

    def look(self, holders: Iterable[int], now: float) -> None:
        """Note the processes of jobs that are there: `holders` of the TPU by their pids, and the launches'."""
        self._seen = {pid: seen for pid, seen in self._seen.items() if now - seen[0] <= _KEPT_SECONDS}
        for pid in {*holders, *self._launches(now)}:
            groups = frozenset(path for _, path in parse_groups(self._read(f"{pid}/cgroup", _MAX_BYTES)) if path != "/")
            self._seen[pid] = now, groups or self._seen.get(pid, (now, frozenset()))[1]

    def include(self, details: Mapping[str, object], now: float) -> bool:
        """Whether a kill with these details is of a job: of its process, or of another one in its cgroup or unit."""
        if details.get("killed_pid") in {*self._seen, *self._launches(now)}:
            return True
        cgroup, unit = details.get("cgroup"), details.get("unit")
        groups = {group for _, some in self._seen.values() for group in some}
        return cgroup in groups or ("cgroup" not in details and any(unit in group.split("/") for group in groups))

    def launch_of(self, details: Mapping[str, object], now: float) -> Launch | None:
        """The launch whose process was killed."""
        pid = details.get("killed_pid")
        return self._launches(now).get(pid) if isinstance(pid, int) else None

    def _launches(self, now: float) -> dict[int, Launch]:
        """The launches that run, or ended just now, by the pids that the host has for them."""
        found = {}
        for launch in self._tracker.latest():
            if launch.history or (launch.ended is not None and now - launch.ended > _KEPT_SECONDS):
                continue
            process = self._tracker.process(launch)
            found[launch.pid if process is None else process.pid] = launch
        return found
