"""What is put in place, kept and removed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.install.fake_host import SYSTEM, FakeHost, take
from tpuwatch.config import render_example
from tpuwatch.core import InstallError
from tpuwatch.install import install_steps, leftovers, uninstall_steps

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = "etc/tpuwatch/config.toml"


@pytest.fixture
def fake(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path)


def test_units_start_this_environments_program(fake: FakeHost) -> None:
    take(list(install_steps(fake.host)))
    service, pruning = (fake.files()[f"{SYSTEM}/{name}"] for name in ("tpuwatch.service", "tpuwatch-prune.service"))
    assert f"\nExecStart={fake.program} run\n" in service
    assert f"\nExecStart={fake.program} tune --prune-logs\n" in pruning
    assert "/opt/tpuwatch" not in service + pruning
    assert fake.files()[CONFIG] == render_example()
    assert {path.stat().st_mode & 0o777 for path in fake.root.rglob("*") if path.is_file()} == {0o644}


def test_systemd_makes_the_user_first_and_starts_the_service_last(fake: FakeHost) -> None:
    take(list(install_steps(fake.host)))
    first, *others = fake.commands
    assert first.startswith("systemd-sysusers ")
    assert first.endswith("/tpuwatch.sysusers.conf")
    assert others == [
        "systemctl daemon-reload",
        "systemctl enable tpuwatch.service",
        "systemctl restart tpuwatch.service",
    ]


def test_the_steps_alone_do_nothing_and_are_those_that_are_done(fake: FakeHost) -> None:
    printed = [step.text for step in install_steps(fake.host)]
    assert (fake.files(), fake.commands) == ({}, [])
    assert take(list(install_steps(fake.host))) == printed


def test_a_configuration_is_never_replaced(fake: FakeHost) -> None:
    (fake.root / CONFIG).parent.mkdir(parents=True)
    (fake.root / CONFIG).write_text("[tune]\n")
    assert "Keep /etc/tpuwatch/config.toml, which is there" in take(list(install_steps(fake.host)))
    assert fake.files()[CONFIG] == "[tune]\n"


def test_a_second_time_nothing_is_written_and_the_service_is_restarted(fake: FakeHost) -> None:
    take(list(install_steps(fake.host)))
    before = fake.files()
    again = take(list(install_steps(fake.host)))
    assert [text for text in again if text.startswith("Write")] == []
    assert again[-1] == "Run systemctl restart tpuwatch.service"
    assert fake.files() == before


def test_the_unit_of_another_environment_is_replaced(fake: FakeHost, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = FakeHost(tmp_path / "other")
    take(list(install_steps(fake.host)))
    (other.root / SYSTEM).parent.mkdir(parents=True)
    (fake.root / SYSTEM).rename(other.root / SYSTEM)
    assert "Write /etc/systemd/system/tpuwatch.service" in take(list(install_steps(other.host)))
    assert f"ExecStart={other.program} run" in other.files()[f"{SYSTEM}/tpuwatch.service"]
    assert [name for name in other.files() if name.endswith(".old")] == []


def test_a_unit_that_was_changed_is_kept_beside_the_new_one(fake: FakeHost) -> None:
    take(list(install_steps(fake.host)))
    unit = fake.root / SYSTEM / "tpuwatch.service"
    ours = unit.read_text()
    changed = ours.replace("MemoryMax=512M", "MemoryMax=2G")
    assert changed != ours
    unit.write_text(changed)
    kept = "Keep /etc/systemd/system/tpuwatch.service as tpuwatch.service.old: it was changed"
    assert kept in take(list(install_steps(fake.host)))
    assert (unit.read_text(), unit.with_name("tpuwatch.service.old").read_text()) == (ours, changed)


def test_a_command_that_fails_ends_it_with_its_words(fake: FakeHost) -> None:
    fake.failing = {"systemctl restart": "Job for tpuwatch.service failed."}
    with pytest.raises(InstallError, match=r"restart tpuwatch.service` failed; `journalctl -u tpuwatch.service` has"):
        take(list(install_steps(fake.host)))
    assert fake.commands[-1] == "systemctl restart tpuwatch.service"


def test_a_file_that_cannot_be_written_is_named(fake: FakeHost) -> None:
    (fake.root / "etc").mkdir()
    (fake.root / "etc/systemd").write_text("a file in the place of a directory")
    with pytest.raises(InstallError, match=r"cannot write .*tpuwatch.service: Not a directory"):
        take(list(install_steps(fake.host)))


def test_uninstalling_stops_and_removes_the_units_alone(fake: FakeHost) -> None:
    take(list(install_steps(fake.host)))
    fake.commands.clear()
    (fake.root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\ntpuwatch:x:998:998::/var/lib/tpuwatch:\n")
    take(list(uninstall_steps(fake.host)))
    assert fake.commands == [
        "systemctl disable --now tpuwatch.service",
        "systemctl disable --now tpuwatch-prune.timer",
        "systemctl daemon-reload",
    ]
    assert set(fake.files()) == {CONFIG, "etc/passwd"}
    assert leftovers(fake.host) == ["rm -r /etc/tpuwatch", "userdel tpuwatch"]


def test_uninstalling_what_is_not_there_does_nothing(fake: FakeHost) -> None:
    assert take(list(uninstall_steps(fake.host))) == []
    assert (fake.commands, leftovers(fake.host)) == ([], [])
