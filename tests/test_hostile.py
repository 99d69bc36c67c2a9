"""Texts that mean harm: they may cost neither memory nor series, and steer nothing that shows them."""

from __future__ import annotations

import gc
import json
import os
import random
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.daemon.test_ingest import Machine
from tests.daemon_process import DaemonProcess, libtpu_name
from tpuwatch.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Iterator

TEXTS = 100_000
BATCH = 5_000
_BAD = (
    "\x00",
    "\x07",
    "\x1b[2J\x1b]0;owned\x07",
    "\x9b31m",
    "\u202e\u2066",
    "<script>alert(1)</script>",
    "'\";--",
    "{}[]\\u0000",
    "\ud7ff\ufffe",
    "%s%n{0}",
    "../../etc/passwd",
    "\u2028\u2029",
    "{number_count}",
    '# HELP x\nx{a="b"} 1',
)
_KINDS = (
    "TESTEVENT {0}",
    "TESTEVENT {0}",
    "Process id {0}\nBuild label: libtpu_{0}",
    "TPU premapped buffer enabled. Size: {0}",
)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    machine.ingest.follower.close()
    machine.journal.close()


def hostile(numbers: range) -> str:
    """Records, no two alike in anything: text, source, thread, process number, details."""
    bad = random.Random(numbers.start)
    lines = []
    for number in numbers:
        text = "".join(bad.choices(_BAD, k=3)).replace("\n", " ")
        header = f"{bad.choice('IWEF')}0921 14:13:20.{number:06d} {number} {number}.cc:{number % 10_000}] "
        lines.append(f"{header}{_KINDS[number % 4].format(number)} {text}\n")
    return "".join(lines)


def resident_kib() -> int:
    gc.collect()
    found = re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1])


def feed(machine: Machine, numbers: range) -> None:
    """Have many texts read: some in a job's output, some in files of processes that never come again."""
    for first in range(numbers.start, numbers.stop, BATCH):
        name = libtpu_name(pid=first + 1, started=f"2026{first // 10_000 % 9 + 1:04d}-141320")
        machine.write(hostile(range(first, first + BATCH)), name)
        machine.turns(4)
        (machine.logs / name).unlink()
        while machine.journal.prune(1e9, 16 << 20):
            pass


def test_neither_series_nor_memory_grow(machine: Machine) -> None:
    machine.ingest._tell = lambda _: None  # what is told is not kept
    machine.turns()
    feed(machine, range(4 * BATCH))
    series = machine.metrics.exposition()[0].count(b"\n")
    before = resident_kib()
    feed(machine, range(4 * BATCH, TEXTS))
    assert machine.metrics.exposition()[0].count(b"\n") == series
    assert resident_kib() - before < 8 * 1024
    assert machine.metric('tpuwatch_events_total{cause="hang"}') == TEXTS / 2


@pytest.mark.parametrize(
    "text",
    [
        "I0000 00:00:" + "9" * 400 + " 1 a.cc:1] TESTEVENT 1\n",
        "E9999 99:99:99.999999 1 a.cc:1] TESTEVENT 1\n",
        "E0230 24:60:61 99999999999999999999 a.cc:9999999] TESTEVENT 1\n",
        "Log file created at: 9999/99/99 00:00:00\nE1231 23:59:59.0 1 a.cc:1] TESTEVENT 1\n",
        "Log file created at: 0000/00/00 00:00:00\nE0101 00:00:00.0 1 a.cc:1] TESTEVENT 1\n",
        "E0921 14:13:20.0 1 a.cc:1] TESTEVENT " + "9" * 5000 + "\n",
        "E0921 14:13:20.0 1 a.cc:1] TPU initialization is successful and it took 1e999s TESTEVENT 1\n",
        "E0921 14:13:20.0 1 a.cc:1] TPU premapped buffer enabled. Size: " + "9" * 400 + "T TESTEVENT 1\n",
        "E0921 14:13:20.0 1 a.cc:1] Process id " + "9" * 400 + " TESTEVENT 1\n",
        "E0921 14:13:20.0 1 " + "a" * 100_000 + ".cc:1] TESTEVENT 1\n",
        "\N{ARABIC-INDIC DIGIT ONE}0921 14:13:20.0 1 a.cc:1] TESTEVENT \N{ARABIC-INDIC DIGIT ONE} TESTEVENT 1\n",
    ],
    ids=range(11),
)
def test_impossible_numbers_stop_nothing(machine: Machine, text: str) -> None:
    machine.turns()
    machine.write(text, libtpu_name(pid=1))
    (machine.jobs / "train.log").write_text(text)
    machine.turns()
    machine.write("E0921 14:13:20.000002 1 a.cc:1] TESTEVENT 2\n", libtpu_name(pid=2))
    machine.turns()
    assert 2 in machine.numbers()
    assert not machine.ingest.holding


def test_nothing_that_shows_text_is_steered_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with DaemonProcess(tmp_path) as daemon:
        daemon.start()
        record = "E0921 14:13:20.{:06d} 1 a.cc:1] TESTEVENT {} {}\n"
        text = "".join(record.format(number, number, bad.replace("\n", " ")) for number, bad in enumerate(_BAD))
        (daemon.logs / "tpu_driver.\x1b[2J\u202e<b>.log").write_text(text)
        (daemon.logs / os.fsdecode(b"tpu_driver.\xff\xfe")).write_text(record.format(99, 99, "a name that is no text"))
        daemon.sees(*range(len(_BAD)), 99)
        events = daemon.ask("/api/v1/events")[1]
        assert events.isascii()
        assert all(char.isprintable() for char in events.rstrip("\n"))
        assert len(json.loads(events)["events"]) == len(_BAD) + 1
        page = daemon.ask("/")[1]
        assert "<script" not in page
        assert "<b>.log" not in page
        metrics = daemon.ask("/metrics")[1]
        assert "passwd" not in metrics
        assert "TESTEVENT" not in metrics
        monkeypatch.setenv("TPUWATCH_CONFIG", str(daemon.config))
        for command in (["events"], ["events", "--json"], ["status"], ["status", "--json"]):
            assert main(command) in (0, 1)
        told = capfd.readouterr()
        assert daemon.stop() == 0
        for shown in (told.out, told.err, daemon.said()):
            assert not [char for char in set(shown) if not char.isprintable() and char != "\n"]
