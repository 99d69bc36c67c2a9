"""The machine that the next launch runs on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.tune.recorded import launch
from tpuwatch.tune.host import read_host

GIB = 1 << 30


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine of 100 GiB, of which 60 are free; process 7 may have 32."""
    (tmp_path / "proc" / "7").mkdir(parents=True)
    (tmp_path / "proc" / "meminfo").write_text(f"MemTotal: {100 << 20} kB\nMemAvailable: {60 << 20} kB\n")
    (tmp_path / "proc" / "7" / "cgroup").write_text("0::/job\n")
    group = tmp_path / "sys" / "fs" / "cgroup" / "job"
    group.mkdir(parents=True)
    (group / "memory.max").write_text(str(32 * GIB))
    (group / "memory.current").write_text(str(12 * GIB))
    return tmp_path


def test_memory_is_the_machines_or_the_cgroups_in_which_the_launch_will_run(root: Path) -> None:
    free = read_host(root=root)
    assert (free.total_bytes, free.taken_bytes) == (100 * GIB, 0)
    assert read_host(root=root, pids=[7]).total_bytes == 32 * GIB


def test_the_memory_that_is_free_at_the_moment_changes_nothing(root: Path) -> None:
    known = read_host(root=root)
    (root / "proc" / "meminfo").write_text(f"MemTotal: {100 << 20} kB\nMemAvailable: {3 << 20} kB\n")
    assert read_host(root=root) == known


def test_what_others_have_premapped_is_taken(root: Path) -> None:
    others = [launch(premapped_bytes=4 * GIB), launch(premapped_bytes=None)]
    assert read_host(root=root, others=others).taken_bytes == 4 * GIB


def test_the_generation_is_the_nodes_else_the_environments_else_the_chips(root: Path) -> None:
    launches = [launch(chip_kind="TPU v4"), launch(chip_kind="TPU v5 lite")]
    environ = {"TPU_ACCELERATOR_TYPE": "v6e-8"}
    assert read_host(root=root, accelerator="v5p-8", environ=environ, launches=launches).generation == "v5p"
    assert read_host(root=root, accelerator="", environ=environ, launches=launches).generation == "v6e"
    assert read_host(root=root, launches=launches).generation == "v5e"
    assert read_host(root=root).generation == ""
    assert read_host(root=root, stored="v4").generation == "v4"
    assert read_host(root=root, stored="v4", launches=launches).generation == "v5e"


def test_a_machine_that_reports_nothing_is_not_known(tmp_path: Path) -> None:
    host = read_host(root=tmp_path)
    assert (host.total_bytes, host.generation) == (None, "")
