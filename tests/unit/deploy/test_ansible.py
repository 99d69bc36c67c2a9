"""The configurations of deploy/ansible are good ones, and name files that the playbook writes."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tomli
import yaml

from tests.paths import ROOT
from tpuwatch.config import Config

ANSIBLE = ROOT / "deploy/ansible"


def tasks(play: dict[str, Any]) -> list[dict[str, Any]]:
    """All tasks, those of blocks too."""
    return [one for task in play["tasks"] for one in (*task.get("block", [task]), *task.get("rescue", []))]


def config(name: str) -> Config:
    return Config.model_validate(tomli.loads((ANSIBLE / name).read_text(encoding="utf-8")))


def test_nodes_and_watcher_agree_on_tls_and_a_token() -> None:
    node, watcher = config("node.toml").http, config("watcher.toml").peers
    assert (bool(node.certificate_file), watcher.tls) == (True, True)
    assert node.token_file == watcher.token_file


@pytest.mark.parametrize("name", ["node.toml", "watcher.toml"])
def test_each_host_gets_its_configuration_and_the_files_that_it_names(name: str) -> None:
    (play,) = yaml.safe_load((ANSIBLE / "playbook.yml").read_text(encoding="utf-8"))
    copies = [task["ansible.builtin.copy"] for task in tasks(play) if "ansible.builtin.copy" in task]
    (secret,) = (copy for copy in copies if "tpuwatch_tls" in copy["src"])
    named = [
        str(path) for path in (*config(name).http, *config(name).peers) for path in path[1:] if "/tls/" in str(path)
    ]
    assert len(named) >= 2
    assert all(path.startswith(secret["dest"]) for path in named)
    assert (secret["group"], secret["mode"]) == ("tpuwatch", "0640")
    hosts = (ANSIBLE / "inventory.ini").read_text(encoding="utf-8")
    assert f"tpuwatch_config={name} tpuwatch_tls=" in hosts


@pytest.mark.slow  # it starts the command three times
@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("[cloud]\nenabled = false\n", True),
        ('[cloud]\nenabled = false\n[restart]\nmode = "act"\n', True),  # a warning: it has no effect
        ("[cloud]\nenabeld = false\n", False),
    ],
)
def test_a_configuration_is_refused_if_it_is_wrong_and_not_for_a_warning(
    tmp_path: Path, text: str, *, taken: bool
) -> None:
    (play,) = yaml.safe_load((ANSIBLE / "playbook.yml").read_text(encoding="utf-8"))
    checks = [copy["validate"] for task in tasks(play) if "validate" in (copy := task.get("ansible.builtin.copy", {}))]
    copy = tmp_path / "of_a_user" / "config.toml"
    copy.parent.mkdir()
    copy.write_text(text)
    copy.parent.chmod(0o777)  # as root sees another user's, whoever runs this test
    programs = Path(sys.executable).parent
    environ = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    of_package = f"{programs}/tpuwatch config check --config"
    assert len(checks) == 2
    for check in checks:
        command = check.replace("/usr/lib/tpuwatch/environment check", of_package) % copy
        done = subprocess.run(shlex.split(command), env=environ, check=False)
        assert (done.returncode == 0) == taken
