"""`tpuwatch restart` beside a daemon on the same machine: what it says when it is interrupted, and who continues."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.e2e.daemon_in_cloud import DaemonInCloud
from tests.e2e.daemon_process import SECONDS, wait_for
from tests.e2e.restart_fleet import NOT_VERIFIED, QUICK, Fleet, restarted

TARGET = "train-1"


@contextmanager
def command(daemon: DaemonInCloud, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Another command of tpuwatch on the daemon's machine."""
    with subprocess.Popen(
        [sys.executable, "-m", "tpuwatch", *words, "--json", "--config", str(daemon.config)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=daemon.environ,
        cwd=daemon.root,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def ended(process: subprocess.Popen[str]) -> tuple[int, Any]:
    """Its exit status and its document."""
    out, err = process.communicate(timeout=SECONDS)
    assert out, err
    return process.returncode, json.loads(out)


def observer(fleet: Fleet, *, watches: str) -> DaemonInCloud:
    """A daemon elsewhere that restarts nothing by itself."""
    daemon = fleet.daemon("outside", {"GCE_METADATA_HOST": "127.0.0.1:9", "GCE_METADATA_IP": "127.0.0.1:9"})
    fleet.configure(daemon, QUICK, cloud={"nodes": [watches]}, runtime={"enabled": False})
    daemon.start()
    return daemon


@pytest.mark.parametrize(("watches", "number"), [("train-1", signal.SIGINT), ("another-*", signal.SIGTERM)])
def test_an_interrupted_restart_is_continued_by_the_daemon_which_is_said(
    fleet: Fleet, watches: str, number: signal.Signals
) -> None:
    daemon = observer(fleet, watches=watches)
    fleet.site.world.timing.stop = 3600.0
    fleet.die()
    with command(daemon, "restart", TARGET, "--yes") as first:
        wait_for(lambda: fleet.happened("stop") or first.poll() is not None, "the stop")
        with command(daemon, "restart", TARGET) as second:
            assert second.stderr is not None
            wait_for(lambda: "follows it" in second.stderr.readline(), "the second to follow")  # type: ignore[union-attr]
            second.send_signal(number)
            code, document = ended(second)
            assert (code, document["outcome"]) == (130, "interrupted")
            assert f"Process {first.pid} on " in document["note"]
        first.send_signal(number)
        code, document = ended(first)
    assert (code, document["outcome"], document["phase"]) == (130, "interrupted", "stopping")
    assert document["note"].startswith(f"The daemon (process {daemon.process.pid} on ")

    with command(daemon, "restarts", "cancel", TARGET) as cancel:
        code, document = ended(cancel)
    assert (code, document["outcome"]) == (1, "not_cancelled")
    assert f"The daemon (process {daemon.process.pid} on " in document["note"]

    with command(daemon, "restart", TARGET) as follower:  # the command that was named
        assert follower.stderr is not None
        wait_for(lambda: "follows it" in follower.stderr.readline(), "it to follow")  # type: ignore[union-attr]
        fleet.site.finish()
        restarted(fleet, daemon, NOT_VERIFIED)
        assert ended(follower)[1]["outcome"] == "not_verified"
        assert follower.returncode == 3


def test_without_a_daemon_it_is_left_and_the_command_that_is_named_continues_it(fleet: Fleet) -> None:
    machine = fleet.daemon("outside", {"GCE_METADATA_HOST": "127.0.0.1:9", "GCE_METADATA_IP": "127.0.0.1:9"})
    fleet.configure(machine, {**QUICK, "verify_seconds": 5.0}, cloud={"nodes": []}, runtime={"enabled": False})
    fleet.site.world.timing.stop = 3600.0
    fleet.die()
    with command(machine, "restart", TARGET, "--yes") as first:
        wait_for(lambda: fleet.happened("stop") or first.poll() is not None, "the stop")
        first.send_signal(signal.SIGINT)
        code, document = ended(first)
    assert (code, document["phase"]) == (130, "stopping")
    assert "no process drives its restart now" in document["note"]
    named = document["note"].partition("`")[2].partition("`")[0].split()
    fleet.site.finish()
    assert named[:2] == ["tpuwatch", "restart"]
    with command(machine, *(word for word in named[1:] if word not in ("--config", str(machine.config)))) as second:
        code, document = ended(second)
    assert (code, document["outcome"]) == (3, "not_verified")
    assert fleet.happened("stop", "start") == ["stop", "start"]
