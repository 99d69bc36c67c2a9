"""Whatever the processes of a machine are like: who is signalled is at fault, or descends from who is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tpuwatch.model.restart import ProcessId
from tpuwatch.restart.local.processes import process_tree
from tpuwatch.restart.local.system import ProcessEntry

OWN = 5
MAX_DESCRIBED = 14


@st.composite
def machines(draw: st.DrawFn) -> dict[int, ProcessEntry]:
    """Processes whose parents and groups are anything: also rings, and parents younger than their children."""
    pids = draw(st.sets(st.integers(2, MAX_DESCRIBED))) | {1, OWN}
    numbers = st.integers(0, MAX_DESCRIBED)
    return {
        pid: ProcessEntry(
            ProcessId(pid, draw(st.integers(pid, pid + 2))),
            draw(numbers),
            draw(numbers),
            draw(st.sampled_from("SDZ")),
            draw(st.booleans()) and draw(st.booleans()),
        )
        for pid in sorted(pids)
    }


def descends(entries: dict[int, ProcessEntry], pid: int, root: int) -> bool:
    """Step by step, as one would by hand."""
    for _ in range(MAX_DESCRIBED):
        if pid == root:
            return True
        if pid not in entries or entries[pid].parent not in entries:
            return False
        pid = entries[pid].parent
    return False


@given(machines(), st.sets(st.integers(1, MAX_DESCRIBED)), st.sets(st.integers(1, MAX_DESCRIBED)), st.data())
def test_nobody_else_is_ever_signalled(
    entries: dict[int, ProcessEntry], holding: set[int], blamed: set[int], data: st.DataObject
) -> None:
    processes = {entries[pid].process for pid in blamed if pid in entries}
    processes |= {
        ProcessId(pid, 10_000) for pid in data.draw(st.sets(st.integers(1, MAX_DESCRIBED)))
    }  # that have ended
    found = process_tree(entries, processes, holding.__contains__, OWN)
    roots = {pid for pid in blamed & holding & entries.keys() if pid != 1 and not entries[pid].kernel}
    for process in (*found.holders, *found.others):
        assert entries[process.pid].process == process
        assert process.pid not in (1, OWN)
        assert not entries[process.pid].kernel
        assert not descends(entries, OWN, process.pid)
        assert any(descends(entries, process.pid, root) for root in roots)
    assert {process.pid for process in found.holders} <= holding
    taken = {process.pid for process in (*found.holders, *found.others)}
    for process in found.others:
        group = entries[process.pid].group
        assert group > 1
        assert any(entries[one.pid].group == group for one in found.holders)
        assert all(pid in taken or one.over for pid, one in entries.items() if one.group == group)


def test_a_parent_younger_than_its_child_is_none() -> None:
    """Its number came to another process between the two reads."""
    entries = {
        40: ProcessEntry(ProcessId(40, 900), 1, 40, "S"),
        41: ProcessEntry(ProcessId(41, 800), 40, 40, "S"),
        42: ProcessEntry(ProcessId(42, 950), 40, 42, "S"),
    }
    found = process_tree(entries, {ProcessId(40, 900)}, {40, 41, 42}.__contains__, OWN)
    assert found.holders == (ProcessId(40, 900), ProcessId(42, 950))


def test_one_that_has_ended_is_no_stranger_in_its_group() -> None:
    entries = {
        39: ProcessEntry(ProcessId(39, 1), 1, 39, "Z"),
        40: ProcessEntry(ProcessId(40, 2), 39, 39, "S"),
        41: ProcessEntry(ProcessId(41, 3), 40, 39, "S"),
    }
    found = process_tree(entries, {ProcessId(40, 2)}, {40}.__contains__, OWN)
    assert (found.holders, found.others) == ((ProcessId(40, 2),), (ProcessId(41, 3),))
