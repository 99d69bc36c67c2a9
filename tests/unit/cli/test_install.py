"""`tpuwatch install` and `tpuwatch uninstall`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.unit.install.fake_host import SYSTEM, FakeHost
from tpuwatch import install
from tpuwatch.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    fake = FakeHost(tmp_path)
    monkeypatch.setattr(install, "InstallHost", lambda: fake.host)
    return fake


def test_it_prints_each_step_and_what_to_do_next(fake: FakeHost, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["install"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "Write /etc/systemd/system/tpuwatch.service"
    assert lines[7] == "Run systemctl restart tpuwatch.service"
    assert f"`{fake.program} status`" in lines[8]
    assert f"{SYSTEM}/tpuwatch.service" in fake.files()


def test_a_dry_run_prints_the_same_and_does_nothing(fake: FakeHost, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["install", "--dry-run"]) == 0
    dry = capsys.readouterr().out.splitlines()
    assert (fake.files(), fake.commands) == ({}, [])
    assert main(["install"]) == 0
    assert capsys.readouterr().out.splitlines()[:8] == dry[:-1]
    assert dry[-1] == "Nothing was done."


def test_as_json(fake: FakeHost, capsys: pytest.CaptureFixture[str]) -> None:
    fake.failing = {"systemctl daemon-reload": "no"}
    assert main(["install", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["steps"][-1] == "Run systemctl daemon-reload"
    assert document["error"] == "`systemctl daemon-reload` failed: no"


def test_a_failure_is_on_standard_error(fake: FakeHost, capsys: pytest.CaptureFixture[str]) -> None:
    fake.failing = {"systemctl restart": "Job failed."}
    assert main(["install"]) == 1
    printed = capsys.readouterr()
    assert "Job failed." in printed.err
    assert "tpuwatch runs" not in printed.out


def test_a_wrong_configuration_is_found_before_anything_is_done(
    fake: FakeHost, capsys: pytest.CaptureFixture[str]
) -> None:
    config = fake.root / "etc/tpuwatch/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("[tune]\nmod = 1\n")
    assert main(["install"]) == 2
    assert "tune.mod is not a key" in capsys.readouterr().err
    assert (list(fake.files()), fake.commands) == (["etc/tpuwatch/config.toml"], [])


def test_where_it_cannot_it_says_why(fake: FakeHost, capsys: pytest.CaptureFixture[str]) -> None:
    (fake.root / "run/systemd/system").rmdir()
    assert main(["install"]) == main(["uninstall"]) == 2
    assert "systemd does not run" in capsys.readouterr().err


@pytest.mark.usefixtures("fake")
def test_uninstall_names_what_stays(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["install"]) == 0
    capsys.readouterr()
    assert main(["uninstall"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "Remove /etc/systemd/system/tpuwatch.service" in lines
    assert lines[-2:] == ["State, configuration and user stay. To remove them too:", "  sudo rm -r /etc/tpuwatch"]
