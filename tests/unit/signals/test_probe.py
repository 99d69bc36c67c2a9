"""The record of a probe: what is left for the daemon, what is read of it, and the event that it becomes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.standins.machine import Machine
from tpuwatch.core.clock import ManualClock
from tpuwatch.model.causes import Cause
from tpuwatch.model.probe import Probe, ProbeVerdict
from tpuwatch.signals.host import HostSignal
from tpuwatch.signals.probe import PROBE_FILE, leave_probe, probe_event, read_probe

PROBE = Probe("ab12", 100.0, 130.0, "boot-1", ProbeVerdict.TPU_FAULT, "It failed.", "jax")


def test_what_is_left_is_read_and_is_part_of_what_the_host_shows(tmp_path: Path) -> None:
    leave_probe(tmp_path, PROBE)
    assert read_probe(tmp_path) == PROBE
    machine = Machine(tmp_path / "root")
    answer = HostSignal(clock=ManualClock(), root=machine.root, state=tmp_path).ask()
    assert answer.value is not None
    assert answer.value.probe == PROBE


def test_there_is_none_before_the_first(tmp_path: Path) -> None:
    assert read_probe(tmp_path) is None


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", "null", json.dumps({"id": "x", "verdict": "tpu_fault"}), "7" * 100_000, '{"began": 1e999}'],
)
def test_what_is_no_probe_is_not_read(tmp_path: Path, text: str) -> None:
    (tmp_path / PROBE_FILE).write_text(text)
    assert read_probe(tmp_path) is None


def test_what_others_could_have_written_is_not_read(tmp_path: Path) -> None:
    leave_probe(tmp_path, PROBE)
    (tmp_path / PROBE_FILE).chmod(0o666)
    assert read_probe(tmp_path) is None
    leave_probe(tmp_path, PROBE)
    assert read_probe(tmp_path) == PROBE
    (tmp_path / PROBE_FILE).rename(tmp_path / "other")
    (tmp_path / PROBE_FILE).symlink_to(tmp_path / "other")
    assert read_probe(tmp_path) is None


def test_a_probe_is_one_event_however_often_it_is_read() -> None:
    event = probe_event(PROBE)
    assert (event.cause, event.cause.is_fault, event.time) == (Cause.PROBE, False, 130.0)
    assert event.text == "tpu_fault: It failed."
    assert probe_event(PROBE).key == event.key != probe_event(replace(PROBE, id="cd34")).key
