"""Kills for lack of memory, as the kernel counts them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tpuwatch.host import oom
from tpuwatch.host.oom import OomKill, OomLimit

LEAF = "system.slice/train.service"


class Machine:
    """The files of a machine with a cgroup in another one."""

    def __init__(self, root: Path, *, cgroup: str = f"0::/{LEAF}", container: bool = False) -> None:
        self.root = root
        self.files = {"proc/self/cgroup": f"{cgroup}\n"}
        self.count("proc/vmstat", oom_kill=0)
        groups = ["system.slice", LEAF, *([""] if container else [])]
        for group in groups:
            self.count(f"sys/fs/cgroup/{group}/memory.events", oom=0, oom_kill=0)
        self.files[f"sys/fs/cgroup/{LEAF}/memory.max"] = "1073741824\n"
        self.files["sys/fs/cgroup/system.slice/memory.max"] = "max\n"

    def count(self, path: str, **numbers: int) -> None:
        self.files[path] = "".join(f"{name} {number}\n" for name, number in numbers.items())

    def kill(self, *hit: str) -> None:
        """A process of the leaf is killed; `hit`: the cgroups that count that their limit was reached."""
        self.count("proc/vmstat", oom_kill=1)
        for group in ("system.slice", LEAF):
            self.count(f"sys/fs/cgroup/{group}/memory.events", oom=int(group in hit), oom_kill=1)

    def read(self) -> oom.OomCounters:
        for path, text in self.files.items():
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_text(text)
        return oom.read_counters(self.root)


def between(machine: Machine, *hit: str) -> OomKill | None:
    before = machine.read()
    machine.kill(*hit)
    return oom.kill_between(before, machine.read())


def test_the_limit_of_our_cgroup_was_reached(tmp_path: Path) -> None:
    kill = between(Machine(tmp_path), LEAF, "system.slice")
    file = str(tmp_path / f"sys/fs/cgroup/{LEAF}/memory.events")
    assert kill == OomKill(OomLimit.CGROUP, file, 1, f"/{LEAF}", f"/{LEAF}", 1 << 30)


def test_the_limit_of_a_cgroup_around_ours_was_reached(tmp_path: Path) -> None:
    kill = between(Machine(tmp_path), "system.slice")
    assert kill is not None
    assert (kill.limit, kill.cgroup, kill.limit_bytes) == (OomLimit.CGROUP, "/system.slice", None)


@pytest.mark.parametrize(("container", "limit"), [(False, OomLimit.MACHINE), (True, OomLimit.UNKNOWN)])
def test_no_limit_that_is_seen_was_reached(tmp_path: Path, container: bool, limit: OomLimit) -> None:
    """In a container a limit around it may have been."""
    kill = between(Machine(tmp_path, container=container))
    assert kill is not None
    assert (kill.limit, kill.cgroup) == (limit, "")


def test_a_kill_in_another_cgroup_is_not_ours(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    before = machine.read()
    machine.count("proc/vmstat", oom_kill=1)
    machine.count("sys/fs/cgroup/system.slice/memory.events", oom=1, oom_kill=1)
    assert oom.kill_between(before, machine.read()) is None


def test_without_counters_of_the_cgroup_the_machines_has_to_do(tmp_path: Path) -> None:
    kill = between(Machine(tmp_path, cgroup="4:memory:/train"))
    assert kill == OomKill(OomLimit.UNKNOWN, "/proc/vmstat", 1)
    machine = Machine(tmp_path, cgroup="4:memory:/train")
    assert oom.kill_between(machine.read(), machine.read()) is None


def test_a_counter_that_was_not_known_before_shows_no_kill(tmp_path: Path) -> None:
    after = Machine(tmp_path)
    after.kill(LEAF)
    assert oom.kill_between(oom.OomCounters(None), after.read()) is None


def test_the_machines_counter_is_read() -> None:
    text = Path("/proc/vmstat").read_text()
    assert (oom.read_counters(Path("/")).machine is not None) is ("\noom_kill " in text)
