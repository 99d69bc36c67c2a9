"""An out-of-memory kill is one match, with all that the kernel's report says of it, however the report comes."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.logs.oom_reports import CONTAINER, GIB, POD, POD_CGROUP, PREFIXES, cgroup_report, log, machine_report
from tpuwatch.logs.parse.parser import LogParser, StreamKind
from tpuwatch.logs.parse.scan import Scanner
from tpuwatch.logs.rules.catalogue import for_streams, load_catalogue

if TYPE_CHECKING:
    from tpuwatch.logs.parse.match import Match

SCANNER = Scanner(for_streams(load_catalogue(), ()))
UNIT = "/system.slice/train.service"
BY_SYSTEMD = [
    "Nov 27 14:02:10 t1v-n-1 systemd[1]: train.service: A process of this unit has been killed by the OOM killer.\n",
    "Nov 27 14:02:11 t1v-n-1 systemd[1]: train.service: Failed with result 'oom-kill'.\n",
]


def parser(state: dict[str, Any] | None = None, offset: int = 0) -> LogParser:
    return LogParser(SCANNER, StreamKind.TEXT, now=1.79e9, state=state, offset=offset)


def read(text: str) -> list[Match]:
    one = parser()
    return faults([*one.feed(text.encode()), *one.finish()])


def faults(matches: list[Match]) -> list[Match]:
    return [match for match in matches if match.rule.cause is not None]


def kills(matches: list[Match]) -> list[Match]:
    """Without the lines that are of a kill that was there before."""
    return [match for match in matches if not match.again]


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES)
def test_a_report_is_one_kill_with_process_cgroup_and_limit(prefix: str) -> None:
    (kill,) = kills(read(log(cgroup_report(), prefix)))
    assert kill.rule.id == "host-oom-cgroup"
    assert kill.details == {
        "process": "python3",
        "killed_pid": 4711,
        "constraint": "CONSTRAINT_MEMCG",
        "cgroup": f"{POD_CGROUP}/{CONTAINER}",
        "limit_cgroup": POD_CGROUP,
        "limit_bytes": 8 * GIB,
        "resident_bytes": 7 * GIB,
        "pod": POD,
        "container": CONTAINER[:12],
    }


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES)
def test_a_machine_without_memory_is_distinguished(prefix: str) -> None:
    (kill,) = kills(read(log(machine_report(), prefix)))
    assert kill.rule.id == "host-oom-machine"
    assert kill.details == {
        "process": "python3",
        "killed_pid": 4711,
        "constraint": "CONSTRAINT_NONE",
        "cgroup": "/user.slice/user-1000.slice/session-3.scope",
        "unit": "session-3.scope",
        "resident_bytes": 401000000 << 10,
    }


@pytest.mark.parametrize(
    ("cgroup", "names"),
    [
        ("/system.slice/train.service", {"unit": "train.service"}),
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/train.service", {"unit": "train.service"}),
        (f"/system.slice/docker-{CONTAINER}.scope", {"container": CONTAINER[:12]}),
        (f"/docker/{CONTAINER}", {"container": CONTAINER[:12]}),
        (
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1234abcd_11aa_22bb_33cc_445566778899.slice/"
            f"cri-containerd-{CONTAINER}.scope",
            {"pod": "1234abcd_11aa_22bb_33cc_445566778899", "container": CONTAINER[:12]},
        ),
        ("/train", {}),
    ],
)
def test_the_cgroup_names_what_it_is_of(cgroup: str, names: dict[str, str]) -> None:
    (kill,) = kills(read(log(cgroup_report(cgroup=cgroup, limit_cgroup=cgroup))))
    assert {name: kill.details[name] for name in ("unit", "pod", "container") if name in kill.details} == names


@pytest.mark.parametrize("first", range(14))
def test_a_report_that_is_cut_is_one_kill_at_most(first: int) -> None:
    report = cgroup_report()
    (whole,) = kills(read(log(report)))
    for stop in range(first + 1, len(report) + 1):
        lines = report[first:stop]
        found = kills(read(log(lines)))
        assert len(found) == any(word in line for line in lines for word in ("oom-kill", "Killed", "oom_reaper"))
        for kill in found:
            assert kill.details.items() <= {**whole.details, "invoker": "python3"}.items()


def test_reports_of_several_machines_may_be_mixed() -> None:
    one = log(cgroup_report(11, "a", limit_kib=1 << 20), "Nov 27 14:02:10 host-a kernel: ").splitlines(keepends=True)
    other = log(cgroup_report(12, "b", limit_kib=2 << 20), "Nov 27 14:02:10 host-b kernel: ").splitlines(keepends=True)
    mixed = "".join(line for pair in zip(one, other, strict=True) for line in pair)
    found = [(kill.details["process"], kill.details["limit_bytes"]) for kill in kills(read(mixed))]
    assert sorted(found) == [("a", GIB), ("b", 2 * GIB)]


def test_of_mixed_reports_of_one_log_each_has_its_own_limit() -> None:
    one = cgroup_report(11, "a", limit_kib=1 << 20, limit_cgroup="/a", cgroup="/a")
    other = cgroup_report(12, "b", limit_kib=2 << 20, limit_cgroup="/b", cgroup="/b")
    found = kills(read(log([*one[:8], *other[:8], *one[8:], *other[8:]])))
    assert [(kill.details["process"], kill.details["limit_bytes"]) for kill in found] == [("a", GIB), ("b", 2 * GIB)]


def test_a_limit_that_may_be_of_another_kill_is_not_shown() -> None:
    lines = [line for line in cgroup_report() if "stats for" not in line]
    other = "memory: usage 1024kB, limit 1024kB, failcnt 1"
    (kill,) = kills(read(log([other, *lines])))
    assert "limit_bytes" not in kill.details
    (kill,) = kills(read(log([other, *machine_report()])))
    assert "limit_bytes" not in kill.details


def test_what_systemd_says_of_it_is_no_second_kill() -> None:
    found = read(log(cgroup_report(cgroup=UNIT, limit_cgroup=UNIT)) + "".join(BY_SYSTEMD))
    assert len(kills(found)) == 1
    assert len({match.key for match in found}) == 1
    (alone,) = kills(read("".join(BY_SYSTEMD)))
    assert alone.details == {"unit": "train.service"}


def test_each_process_that_is_killed_with_its_cgroup_is_a_kill() -> None:
    killed = "Memory cgroup out of memory: Killed process {} (worker) total-vm:1kB, anon-rss:{}kB"
    lines = [*cgroup_report(), *(killed.format(pid, pid) for pid in range(5000, 5100))]
    assert [kill.details["killed_pid"] for kill in kills(read(log(lines)))] == [4711, *range(5000, 5100)]


def test_a_kill_has_the_same_key_in_each_log_that_has_it() -> None:
    keys = [
        kill.key
        for prefix in PREFIXES.values()
        for lines in (cgroup_report(), cgroup_report()[-2:])
        for kill in kills(read(log(lines, prefix)))
    ]
    assert len(keys) == 2 * len(PREFIXES)
    assert len(set(keys)) == 1


def test_a_child_that_was_killed_instead_is_the_kill() -> None:
    lines = [
        "Out of memory: Kill process 456 (python) score 50 or sacrifice child",
        "Killed process 457 (child) total-vm:9kB, anon-rss:8kB, file-rss:0kB",
    ]
    (kill,) = kills(read(log([lines[0]])))
    assert kill.details["killed_pid"] == 456
    (kill,) = kills(read(log([lines[0], "Out of memory: " + lines[1]])))
    assert kill.details["killed_pid"] == 457


TEXT = (
    log(cgroup_report()) + log(machine_report(4800, "b")) + log(cgroup_report(4900, cgroup=UNIT, limit_cgroup=UNIT))
) + "".join(BY_SYSTEMD)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, len(TEXT)), max_size=8), st.booleans())
def test_it_does_not_matter_where_the_bytes_are_split_or_reading_is_interrupted(cuts: list[int], resume: bool) -> None:
    data, found, one, sizes = TEXT.encode(), [], parser({"salt": "0"}), sorted({0, *cuts, len(TEXT)})
    for start, stop in itertools.pairwise(sizes):
        found += one.feed(data[start:stop])
        if resume:
            one = parser(json.loads(json.dumps(one.state())), one.offset)
            found += one.feed(data[one.offset : stop])
    found += one.finish()
    whole = parser({"salt": "0"})
    expected = [(kill.key, kill.details) for kill in faults([*whole.feed(data), *whole.finish()])]
    assert [(kill.key, kill.details) for kill in faults(found)] == expected


def test_a_report_is_given_when_the_log_is_quiet() -> None:
    lines, one = log(cgroup_report()[:-2]), parser()
    assert faults(one.feed(lines.encode())) == []
    assert one.open
    (kill,) = faults(one.settle())
    assert kill.details["killed_pid"] == 4711
    assert not one.open
    assert [match.again for match in faults(one.feed(log(cgroup_report()[-2:]).encode()) + one.finish())] == [
        True,
        True,
    ]
