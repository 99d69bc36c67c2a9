"""What acting on the machine needs is an addition to the unit, and no part of it."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.systemd_units import UNITS, installed, settings, takes_systemd, verify

UNIT, DROP_IN = "tpuwatch.service", "tpuwatch-act.conf"


@takes_systemd
def test_systemd_takes_the_drop_in_without_a_word(tmp_path: Path) -> None:
    assert verify(installed(tmp_path, UNIT, drop_in=(UNITS / DROP_IN).read_text())) == (0, "")


def test_it_adds_what_the_unit_itself_does_not_have() -> None:
    added = settings(DROP_IN)
    assert added["AmbientCapabilities"] == added["CapabilityBoundingSet"] == "CAP_KILL CAP_SYS_PTRACE CAP_FOWNER"
    assert added["ReadWritePaths"] == "/tmp"  # noqa: S108 (where libtpu has its lock file)
    unit = settings(UNIT)
    assert unit["AmbientCapabilities"] == unit["CapabilityBoundingSet"] == "CAP_DAC_READ_SEARCH"
    assert "ReadWritePaths" not in unit


def test_but_for_tmp_what_the_unit_only_reads_stays_so() -> None:
    before = settings(UNIT)["ReadOnlyPaths"].split()
    after = settings(DROP_IN)["ReadOnlyPaths"].split()
    assert [*after, "/tmp"] == [*before[1:], before[0]]  # noqa: S108 (as above)
