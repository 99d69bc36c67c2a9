"""What can be known of the checks on a booted Debian without booting one."""

from __future__ import annotations

import subprocess

import pytest

from tests.proof.boot import manual


@pytest.mark.parametrize(
    ("document", "heading", "word"),
    [
        ("README.md", "## Install on a TPU VM", "tpuwatch install"),
        ("docs/operations.md", "## Upgrading", "tpuwatch install"),
        ("docs/operations.md", "## Removing it", "tpuwatch uninstall"),
        ("docs/operations.md", "## The logs themselves", "enable --now tpuwatch-prune.timer"),
        ("docs/operations.md", "## The next launch's environment", "tpuwatch-job.conf"),
    ],
)
def test_it_runs_the_commands_that_the_documents_give(document: str, heading: str, word: str) -> None:
    script = manual.commands(document, heading)
    assert word in script
    assert "```" not in script
    subprocess.run(["sh", "-n"], input=script, text=True, check=True)  # noqa: S607 # wherever the system has it


def test_it_installs_the_drop_in_as_the_readme_says() -> None:
    assert "/etc/systemd/system/tpuwatch.service.d/" in manual.sentence("README.md", "tpuwatch-holders.conf")


def test_it_installs_the_package_as_the_readme_says() -> None:
    assert "./tpuwatch_*_amd64.deb" in manual.sentence("README.md", "apt-get install")


def test_it_removes_the_timer_as_the_manual_says() -> None:
    assert "disable --now tpuwatch-prune.timer" in manual.sentence("docs/operations.md", "tpuwatch-prune.timer")
