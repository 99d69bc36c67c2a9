"""A machine in a directory, whose commands are written down."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tpuwatch.install import InstallHost

if TYPE_CHECKING:
    from pathlib import Path

    from tpuwatch.install import InstallStep

SYSTEM = "etc/systemd/system"


class FakeHost:
    """`commands` are those that were run; `failing` maps the first words of one to what it says."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "root"
        self.program = directory / "venv" / "bin" / "tpuwatch"
        self.program.parent.mkdir(parents=True)
        self.program.write_text("#!/bin/sh\n")
        (self.root / "run/systemd/system").mkdir(parents=True)
        self.commands: list[str] = []
        self.failing: dict[str, str] = {}
        self.package = directory / "venv" / "lib" / "tpuwatch"
        self.package.mkdir(parents=True)
        (self.package / "__init__.py").touch()
        self.host = InstallHost(
            self.root,
            self.program,
            self._run,
            is_root=True,
            trusted_uids=frozenset({0, os.geteuid()}),
            code=(self.package.parent,),
            has_members=lambda _, __: False,
        )

    def _run(self, *command: str) -> str:
        self.commands.append(" ".join(command))
        return next((said for words, said in self.failing.items() if " ".join(command).startswith(words)), "")

    def files(self) -> dict[str, str]:
        """The text of each file of the machine."""
        paths = [path for path in self.root.rglob("*") if path.is_file()]
        return {str(path.relative_to(self.root)): path.read_text() for path in paths}


def take(steps: list[InstallStep]) -> list[str]:
    """Do the steps; what they were."""
    for step in steps:
        step.do()
    return [step.text for step in steps]
