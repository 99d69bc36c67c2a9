"""The environment in which `tpuwatch exec` starts a command."""

from __future__ import annotations

from pathlib import Path

from tpuwatch.exec.preparation import prepare_run
from tpuwatch.workload import SOCKET_VARIABLE


def socket_for(config: Path, **environ: str) -> str | None:
    given = {"HOME": str(config.parent), **environ}
    return prepare_run("train", given, 1.0, config=config).environ.get(SOCKET_VARIABLE)


def test_heartbeats_of_the_command_reach_the_configured_daemon(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text(f'[state]\ndir = "{tmp_path}/state"\n')
    assert socket_for(config) == f"{tmp_path}/state/heartbeats.socket"
    assert socket_for(config, **{SOCKET_VARIABLE: "/run/own.socket"}) == "/run/own.socket"
    config.write_text('[workload]\nsocket = "/run/other.socket"\n')
    assert socket_for(config) == "/run/other.socket"
    config.write_text("[workload]\nsocket = 7\n")
    assert socket_for(config) is None  # a job looks at the default by itself
