"""The drop-in that lets the unit see other users' open devices, and no more than that."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.systemd_units import UNITS, installed, settings, takes_systemd, verify

UNIT, DROP_IN = "tpuwatch.service", "tpuwatch-holders.conf"


@takes_systemd
def test_systemd_takes_the_drop_in_without_a_word(tmp_path: Path) -> None:
    assert verify(installed(tmp_path, UNIT, drop_in=(UNITS / DROP_IN).read_text())) == (0, "")


@takes_systemd
def test_systemd_does_read_the_drop_in(tmp_path: Path) -> None:
    code, words = verify(installed(tmp_path, UNIT, drop_in=(UNITS / DROP_IN).read_text() + "Nonsense=1\n"))
    assert (code, "Nonsense" in words) == (1, True)


def test_it_adds_one_capability_which_the_unit_itself_does_not_have() -> None:
    added = settings(DROP_IN)
    assert added.pop("SystemCallFilter").startswith("~")  # it forbids more, and allows nothing
    assert added == {"AmbientCapabilities": "CAP_SYS_PTRACE", "CapabilityBoundingSet": "CAP_SYS_PTRACE"}
    assert "PTRACE" not in (UNITS / UNIT).read_text()
