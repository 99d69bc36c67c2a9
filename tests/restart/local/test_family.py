"""Whatever the processes of a machine are like: who is signalled is at fault, or descends from who is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tpuwatch.restart.local.family import family
from tpuwatch.restart.local.system import Entry, Who

OWN = 5
MOST = 14


@st.composite
def machines(draw: st.DrawFn) -> dict[int, Entry]:
    """Processes whose parents and groups are anything: also rings, and parents younger than their children."""
    pids = draw(st.sets(st.integers(2, MOST))) | {1, OWN}
    numbers = st.integers(0, MOST)
    return {
        pid: Entry(
            Who(pid, draw(st.integers(pid, pid + 2))),
            draw(numbers),
            draw(numbers),
            draw(st.sampled_from("SDZ")),
            draw(st.booleans()) and draw(st.booleans()),
        )
        for pid in sorted(pids)
    }


def descends(entries: dict[int, Entry], pid: int, root: int) -> bool:
    """Step by step, as one would by hand."""
    for _ in range(MOST):
        if pid == root:
            return True
        if pid not in entries or entries[pid].parent not in entries:
            return False
        pid = entries[pid].parent
    return False


@given(machines(), st.sets(st.integers(1, MOST)), st.sets(st.integers(1, MOST)), st.data())
def test_nobody_else_is_ever_signalled(
    entries: dict[int, Entry], holding: set[int], blamed: set[int], data: st.DataObject
) -> None:
    whos = {entries[pid].who for pid in blamed if pid in entries}
    whos |= {Who(pid, 10_000) for pid in data.draw(st.sets(st.integers(1, MOST)))}  # that have ended
    found = family(entries, whos, holding.__contains__, OWN)
    roots = {pid for pid in blamed & holding & entries.keys() if pid != 1 and not entries[pid].kernel}
    for who in (*found.holders, *found.others):
        assert entries[who.pid].who == who
        assert who.pid not in (1, OWN)
        assert not entries[who.pid].kernel
        assert not descends(entries, OWN, who.pid)
        assert any(descends(entries, who.pid, root) for root in roots)
    assert {who.pid for who in found.holders} <= holding
    taken = {who.pid for who in (*found.holders, *found.others)}
    for who in found.others:
        group = entries[who.pid].group
        assert group > 1
        assert any(entries[one.pid].group == group for one in found.holders)
        assert all(pid in taken or one.over for pid, one in entries.items() if one.group == group)


def test_a_parent_younger_than_its_child_is_none() -> None:
    """Its number came to another process between the two reads."""
    entries = {
        40: Entry(Who(40, 900), 1, 40, "S"),
        41: Entry(Who(41, 800), 40, 40, "S"),
        42: Entry(Who(42, 950), 40, 42, "S"),
    }
    found = family(entries, {Who(40, 900)}, {40, 41, 42}.__contains__, OWN)
    assert found.holders == (Who(40, 900), Who(42, 950))


def test_one_that_has_ended_is_no_stranger_in_its_group() -> None:
    entries = {
        39: Entry(Who(39, 1), 1, 39, "Z"),
        40: Entry(Who(40, 2), 39, 39, "S"),
        41: Entry(Who(41, 3), 40, 39, "S"),
    }
    found = family(entries, {Who(40, 2)}, {40}.__contains__, OWN)
    assert (found.holders, found.others) == ((Who(40, 2),), (Who(41, 3),))
