"""The benchmark of restarts, in small."""

from __future__ import annotations

import json
import subprocess
import sys


def test_restarts_are_timed_and_idle_watching_asks_for_nothing() -> None:
    command = [sys.executable, "-m", "tests.proof.bench", "--smoke", "--json", "restarts"]
    done = subprocess.run(command, check=True, capture_output=True, timeout=120)
    figures = {figure["name"]: figure["value"] for figure in json.loads(done.stdout)}
    assert figures["restart: evidence complete to the stop call, median"] > 0
    assert figures["restart: added to the cloud's stop and start, median"] > 0
    assert figures["restart: nodes that are watched and well"] == 600
    assert figures["restart: requests to Cloud Storage meanwhile"] == 0
