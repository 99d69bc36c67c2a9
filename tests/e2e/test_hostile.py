"""Texts that mean harm: they may cost neither memory nor series, and steer nothing that shows them."""

from __future__ import annotations

import gc
import json
import os
import random
import re
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.daemon_process import DaemonProcess, libtpu_name, wait_for
from tests.unit.daemon.test_daemon_reload import Site, site
from tests.unit.ingest.test_ingest import Machine, machine
from tests.unit.store.make import event
from tpuwatch.cli.main import main
from tpuwatch.core.clock import SystemClock
from tpuwatch.model.causes import Cause
from tpuwatch.model.launches import Launch, Outcome
from tpuwatch.store import EventStore

__all__ = ["machine", "site"]  # fixtures

TEXTS = 100_000
NONSENSE = "9" * 400
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
        while machine.store.prune(1e9, 16 << 20):
            pass


def test_neither_series_nor_memory_grow(machine: Machine) -> None:
    machine.ingest._on_events = lambda _: None  # events are not kept
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
    assert not machine.ingest.blocked


@pytest.mark.parametrize(
    "text",
    [
        f"Error allocating device buffer: Attempting to allocate {NONSENSE}G. That was not possible.",
        f"Error allocating device buffer: Attempting to allocate {NONSENSE}.5G. That was not possible.",
        f"TPU premapped buffer enabled. Size: {NONSENSE}",
        f"TPU initialization is successful and it took {NONSENSE}s",
    ],
)
def test_what_follows_an_impossible_number_is_stored_reported_and_counted(
    site: Site, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    daemon, log = site.daemon, site.root / "logs" / libtpu_name()
    daemon.turn()
    header, in_use = "E0921 14:13:20.{:06d} 1 a.cc:1] ", "The TPU is already in use by process with pid 4711.\n"
    done = "TPU initialization is successful and it took 3.5s\n"
    log.write_text("".join(header.format(n) + one for n, one in enumerate((f"{text}\n", in_use, done, "end\n"))))
    for _ in range(3):
        site.clock.advance(1.0)
        daemon.turn()
    assert not [record for record in caplog.records if record.exc_info]
    metrics = daemon.metrics.exposition()[0].decode()
    assert 'tpuwatch_events_total{cause="tpu_in_use"} 1' in metrics
    (printed,) = (record for record in caplog.records if record.getMessage().startswith("tpu_in_use: "))
    assert printed.levelname == "WARNING"
    assert "999" not in json.dumps([one.details for one in daemon._store.events()])


def test_impossible_numbers_that_an_earlier_version_stored_break_no_view(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with DaemonProcess(tmp_path) as daemon:
        store, now = EventStore.open(daemon.state, SystemClock()), SystemClock().time() - 60
        huge: dict[str, Any] = {"requested_bytes": 10**400, "free_bytes": float("inf"), "init_seconds": float("inf")}
        forged = event("f", rule="hbm-oom-runtime", cause=Cause.HBM_OOM_RUNTIME, time=now, observed=now, details=huge)
        slow = event("s", rule="slow-init", cause=Cause.SLOW_INIT, time=now, observed=now, details=huge)
        launch = Launch(
            4711, now, init_seconds=float("inf"), premapped_bytes=10**400, premapped_failures=1, outcome=Outcome.SLOW
        )
        store.commit([forged, slow], [], [launch])
        store.close()
        daemon.start()
        for path in ("/", "/metrics", *(f"/api/v1/{name}" for name in ("status", "findings", "events", "launches"))):
            assert (daemon.ask(path)[0], path) == (200, path)
        assert {one["cause"] for one in daemon.api("findings")["findings"]} == {"hbm_oom_runtime", "slow_init"}
        (shown,) = daemon.api("launches")["launches"]
        assert (shown["init_seconds"], shown["premapped_bytes"], shown["outcome"]) == (None, None, "slow")
        monkeypatch.setenv("TPUWATCH_CONFIG", str(daemon.config))
        wait_for(lambda: daemon.api("status")["judged"], "the first verdict")
        for command in (["events"], ["events", "--json"], ["status"], ["status", "--json"]):
            assert main(command) in (0, 1)
        printed = capfd.readouterr().out
        assert "HBM is full: an unknown amount was asked for and an unknown amount is free." in printed
        assert "TPU initialisation took an unknown time." in printed
        assert daemon.stop() == 0
        assert "Traceback" not in daemon.said()


def test_no_view_executes_the_text_that_it_shows(
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
        assert page.count("<script") == 1  # ours
        assert "<b>.log" not in page
        metrics = daemon.ask("/metrics")[1]
        assert "passwd" not in metrics
        assert "TESTEVENT" not in metrics
        monkeypatch.setenv("TPUWATCH_CONFIG", str(daemon.config))
        wait_for(lambda: daemon.api("status")["judged"], "the first verdict")
        for command in (["events"], ["events", "--json"], ["status"], ["status", "--json"]):
            assert main(command) in (0, 1)
        printed = capfd.readouterr()
        assert daemon.stop() == 0
        for shown in (printed.out, printed.err, daemon.said()):
            assert not [char for char in set(shown) if not char.isprintable() and char != "\n"]
