from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.standins.machine import Machine
from tpuwatch.host.memory import Memory, parse_groups, read_memory
from tpuwatch.host.procfs import ProcFs

KIB = 1024


@pytest.fixture(autouse=True)
def process(machine: Machine) -> None:
    machine.process(40)


def read(machine: Machine, *pids: int, pinned: int = 0) -> Memory:
    return read_memory(ProcFs(machine.root / "proc"), machine.root, pids, pinned)


def limit(machine: Machine, group: str, limit: object, usage: object, cache: int = 0) -> None:
    machine.write(f"sys/fs/cgroup/{group}/memory.max", f"{limit}\n")
    machine.write(f"sys/fs/cgroup/{group}/memory.current", f"{usage}\n")
    machine.write(f"sys/fs/cgroup/{group}/memory.stat", f"anon 5\ninactive_file {cache}\n")


def test_without_holders_the_machine_has_what_it_has(machine: Machine) -> None:
    assert read(machine) == Memory(1000 * KIB, 600 * KIB, 20 * KIB)


def test_the_tightest_of_nested_limits_counts(machine: Machine) -> None:
    machine.write("proc/40/cgroup", "0::/a/b\n")
    limit(machine, "a", 400 * KIB, 390 * KIB)
    limit(machine, "a/b", 300 * KIB, 100 * KIB)
    assert read(machine, 40) == Memory(300 * KIB, 10 * KIB, 20 * KIB)


def test_a_cache_that_can_be_dropped_is_available(machine: Machine) -> None:
    machine.write("proc/40/cgroup", "0::/a\n")
    limit(machine, "a", 400 * KIB, 390 * KIB, cache=90 * KIB)
    assert read(machine, 40).available == 100 * KIB


def test_the_limit_of_a_group_that_is_over_it_leaves_nothing(machine: Machine) -> None:
    machine.write("proc/40/cgroup", "0::/a\n")
    limit(machine, "a", 400 * KIB, 500 * KIB)
    assert read(machine, 40).available == 0


@pytest.mark.parametrize("value", ["max", "", "-1", "x", "9" * 30])
def test_what_is_no_limit_limits_nothing(machine: Machine, value: str) -> None:
    machine.write("proc/40/cgroup", "0::/a\n")
    limit(machine, "a", value, 500 * KIB)
    assert read(machine, 40) == read(machine)


def test_limits_of_the_older_cgroups_count_as_well(machine: Machine) -> None:
    machine.write("proc/40/cgroup", "4:cpu,memory:/docker/x\n0::/\n")
    group = "sys/fs/cgroup/memory/docker/x"
    machine.write(f"{group}/memory.limit_in_bytes", f"{200 * KIB}\n")
    machine.write(f"{group}/memory.usage_in_bytes", f"{150 * KIB}\n")
    machine.write(f"{group}/memory.stat", f"inactive_file 1\ntotal_inactive_file {20 * KIB}\n")
    assert read(machine, 40) == Memory(200 * KIB, 70 * KIB, 20 * KIB)


def test_a_group_outside_of_the_tree_is_not_followed(machine: Machine) -> None:
    machine.write("proc/40/cgroup", "0::/../../../etc\n")
    machine.write("etc/memory.max", "1\n")
    machine.write("etc/memory.current", "1\n")
    assert read(machine, 40) == read(machine)


def test_pinned_memory_is_what_the_kernel_or_the_holders_say_whichever_is_more(machine: Machine) -> None:
    assert read(machine, pinned=5 * KIB).pinned == 20 * KIB
    assert read(machine, pinned=50 * KIB).pinned == 50 * KIB


def test_a_kernel_that_reports_nothing_is_no_fault(machine: Machine) -> None:
    machine.write("proc/meminfo", "")
    assert read(machine, 40) == Memory()


@given(st.binary(max_size=200))
def test_any_list_of_groups_is_read_or_left(raw: bytes) -> None:
    assert all(".." not in path.split("/") and "\0" not in path for _, path in parse_groups(raw))
