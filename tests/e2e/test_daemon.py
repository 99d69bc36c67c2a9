"""The daemon as its operators meet it: the real command, real files, real signals."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import socket
import tempfile
from typing import TYPE_CHECKING

import pytest

from tests.e2e.daemon_process import SECONDS, DaemonProcess, libtpu_name, record, wait_for
from tests.proof.chaos.run import Chaos

if TYPE_CHECKING:
    from pathlib import Path

EVENTS = 'tpuwatch_events_total{cause="hang"}'


# -- its life


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(daemon: DaemonProcess, number: signal.Signals) -> None:
    daemon.start()
    (daemon.logs / libtpu_name()).write_text(record(1))
    assert daemon.stop(number) == 0
    assert any(line.endswith("info    Stopping.") for line in daemon.said().splitlines())  # others may still speak
    assert not daemon.address  # nobody is sent to where nobody serves
    daemon.start()
    daemon.sees(1)
    assert daemon.api("status")["notices"] == []


def test_systemd_is_notified_of_what_happens(daemon: DaemonProcess) -> None:
    with tempfile.TemporaryDirectory() as short, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"{short}/notify")
        manager.settimeout(SECONDS)
        daemon.environ |= {"NOTIFY_SOCKET": f"{short}/notify", "WATCHDOG_USEC": "400000"}
        daemon.start()
        messages: list[str] = []

        def receives(*words: str) -> None:
            for _ in range(500):
                if all(any(word in message for message in messages) for word in words):
                    return
                messages.append(manager.recv(4096).decode())
            raise AssertionError(f"{words} are not all in {messages}")

        receives("READY=1\nSTATUS=", "WATCHDOG=1", "STATUS=Following the logs; nothing new.")
        assert messages[0].startswith("READY=1")
        messages.clear()
        daemon.process.send_signal(signal.SIGHUP)
        receives("RELOADING=1\nMONOTONIC_USEC=", "READY=1")
        daemon.process.terminate()
        receives("STOPPING=1")
        assert daemon.process.wait(SECONDS) == 0


def test_a_reload_takes_a_good_configuration_and_no_bad_one(daemon: DaemonProcess) -> None:
    daemon.start()
    other = daemon.root / "other"
    other.mkdir()
    daemon.configure(pahts=[str(other)])
    daemon.process.send_signal(signal.SIGHUP)
    wait_for(lambda: daemon.metric("tpuwatch_config_reload_success") == 0, "the reload to be refused")
    (notice,) = wait_for(lambda: daemon.api("status")["notices"], "word of it")
    assert notice.startswith("The configuration stays as it was: ")
    assert "logs.pahts is not a key of tpuwatch; did you mean logs.paths?" in notice
    (daemon.logs / libtpu_name()).write_text(record(1))
    daemon.sees(1)

    rules = (daemon.rules / "test.toml").read_text()
    (daemon.rules / "more.toml").write_text(rules.replace("test-event", "new-event").replace("TESTEVENT", "NEWEVENT"))
    daemon.configure(paths=[str(daemon.logs), str(other)])
    daemon.process.send_signal(signal.SIGHUP)
    wait_for(lambda: daemon.metric("tpuwatch_config_reload_success") == 1, "the reload to succeed")
    wait_for(lambda: not daemon.api("status")["notices"], "the all-clear")
    (other / libtpu_name()).write_text(record(2).replace("TESTEVENT", "NEWEVENT"))
    daemon.sees(1, 2)
    daemon.counts(EVENTS, 2)


def test_a_reload_may_move_it_to_another_address_but_not_to_another_state(daemon: DaemonProcess) -> None:
    daemon.start()
    before = daemon.address
    daemon.configure(listen="localhost:0")
    daemon.process.send_signal(signal.SIGHUP)
    wait_for(lambda: daemon.address != before, "another address")
    assert daemon.ask("/readyz")[0] == 200
    assert daemon.ask("/readyz", before) == (0, "")
    here = daemon.state
    daemon.state = daemon.root / "elsewhere"
    daemon.configure()
    daemon.state = here
    daemon.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "state.dir cannot change while tpuwatch runs" in daemon.said(), "the refusal")


# -- what it counts


def test_what_is_written_while_it_is_down_is_live(daemon: DaemonProcess) -> None:
    daemon.start()  # on a machine without any logs: its first run, all the same
    assert daemon.stop() == 0
    (daemon.logs / libtpu_name()).write_text(record(1))
    daemon.start()
    daemon.sees(1)
    daemon.counts(EVENTS, 1)


def test_what_is_written_while_it_is_down_is_added_to_what_was_counted(daemon: DaemonProcess) -> None:
    daemon.start()
    log = daemon.logs / libtpu_name()
    log.write_text(record(1) + record(2))
    daemon.counts(EVENTS, 2)
    daemon.kill()
    with log.open("a") as file:
        file.write(record(3))
    daemon.start()
    daemon.counts(EVENTS, 3)


def test_a_launch_that_a_restart_cuts_in_two_is_one(daemon: DaemonProcess) -> None:
    log = daemon.logs / libtpu_name()
    line = "I0921 14:13:{:09.6f}  4242 tpu.cc:7] {}\n"
    daemon.start()
    with log.open("a") as file:
        file.write("Log file created at: 2026/09/21 14:13:20\n" + line.format(20, "Build label: libtpu_test"))
        file.write(line.format(21, "Starting premapped memory manager initialization..."))
    wait_for(lambda: daemon.api("launches")["launches"], "the launch")
    daemon.kill()
    with log.open("a") as file:
        file.write(line.format(59, "CreateTpuSystemState: TPU initialization is successful and it took 39.5s"))
    daemon.start()
    wait_for(lambda: daemon.api("launches")["launches"][0]["init_seconds"], "its end")
    (launch,) = daemon.api("launches")["launches"]
    assert (launch["build"], launch["init_seconds"]) == ("libtpu_test", 39.5)


def test_kills_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    verdict = Chaos(tmp_path, kills=6, seed=11).run()
    assert verdict.faults == [], verdict.summary


# -- what it may meet at its start


def test_a_second_one_on_the_same_state_is_refused(daemon: DaemonProcess) -> None:
    daemon.start()
    first, daemon.output = daemon.process, daemon.root / "second.log"
    try:
        status, said = daemon.fails()
        assert status == 3
        assert f"another tpuwatch (pid {first.pid}) uses the state directory {daemon.state}" in said
        assert first.poll() is None
    finally:
        first.kill()
        first.wait(SECONDS)


def test_a_port_in_use_is_named(daemon: DaemonProcess) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        daemon.configure(listen=f"127.0.0.1:{port}")
        status, said = daemon.fails()
    assert status == 2
    assert f"Cannot listen on 127.0.0.1:{port}: another program has the port" in said
    assert "Traceback" not in said


def test_a_store_that_cannot_be_used_is_set_aside(daemon: DaemonProcess) -> None:
    daemon.state.mkdir()
    store = daemon.state / "store.db"
    store.write_bytes(b"no database at all" * 1000)
    before = store.read_bytes()
    daemon.start()
    (kept,) = daemon.state.glob("store.db.corrupt-*")
    assert kept.read_bytes() == before
    (notice,) = daemon.api("status")["notices"]
    assert f"it was kept as {kept.name}, and a new store begun" in notice
    assert notice in daemon.said()
    assert daemon.stop() == 0


def test_a_state_directory_that_cannot_be_had(daemon: DaemonProcess) -> None:
    (daemon.root / "state").write_text("a file, and no directory")
    with socket.socket() as reserved:  # it never listens: so nobody else is given the port, and the daemon may have it
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{reserved.getsockname()[1]}"
        daemon.configure(listen=address)
        daemon.spawn()
        wait_for(lambda: daemon.ask("/healthz", address)[0] == 200, "the daemon")
        assert "tpuwatch_store_durable 0.0" in daemon.ask("/metrics", address)[1]
        status, body = daemon.ask("/readyz", address)
        assert status == 503
        assert "Events are held in memory only. The store cannot be kept in" in body
        looked = re.compile(r'^tpuwatch_loop_last_success_timestamp_seconds\{loop="logs"\} [1-9]', re.MULTILINE)
        # What is there before the first look is history.
        wait_for(lambda: looked.search(daemon.ask("/metrics", address)[1]), "the first look")
        (daemon.logs / libtpu_name()).write_text(record(1))
        wait_for(lambda: f"{EVENTS} 1.0" in daemon.ask("/metrics", address)[1], "the event")
        assert "it is in memory, and lost when tpuwatch ends" in daemon.ask("/api/v1/status", address)[1]
        (daemon.root / "state").unlink()
        wait_for(lambda: daemon.ask("/readyz", address)[0] == 200, "a durable store")
        assert "tpuwatch_store_durable 1.0" in daemon.ask("/metrics", address)[1]
        daemon.kill()
        daemon.start()
        daemon.sees(1)
        assert daemon.stop() == 0


@pytest.mark.skipif(os.geteuid() == 0 and not shutil.which("setpriv"), reason="root can read everything")
def test_logs_that_may_not_be_read(daemon: DaemonProcess) -> None:
    if os.geteuid() == 0:  # without these root is like any other owner
        daemon.by = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
    log = daemon.logs / libtpu_name()
    log.write_text(record(1))
    log.chmod(0o000)
    daemon.logs.chmod(0o000)
    daemon.spawn()
    wait_for(lambda: "No log can be read." in daemon.ask("/readyz")[1], "not being ready")
    assert daemon.api("status")["problems"] == [{"path": str(daemon.logs), "reason": "permission"}]
    daemon.logs.chmod(0o755)
    wait_for(lambda: daemon.api("status")["problems"] == [{"path": str(log), "reason": "permission"}], "the file")
    log.chmod(0o644)
    daemon.sees(1)
    wait_for(lambda: daemon.ask("/readyz")[0] == 200, "being ready")


# -- what it may meet at work


def test_a_full_disk_loses_nothing(daemon: DaemonProcess) -> None:
    daemon.start()
    log = daemon.logs / libtpu_name()
    log.write_text(record(1))
    daemon.sees(1)
    limits = resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (1000, limits[1]))
    with log.open("a") as file:
        file.write(record(2) + record(3))
    wait_for(lambda: daemon.metric("tpuwatch_store_errors_total") >= 1, "the failed write")
    waiting = wait_for(lambda: daemon.api("status")["store"]["detail"], "word of it")
    assert waiting.startswith("Reading waits until what was read can be stored: cannot write the store")
    assert daemon.numbers() == [1]
    assert daemon.metric(EVENTS) == 1
    with log.open("a") as file:
        file.write(record(4))
    resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, limits)
    daemon.sees(1, 2, 3, 4)
    daemon.counts(EVENTS, 4)
    wait_for(lambda: not daemon.api("status")["store"]["detail"], "the all-clear")
    assert daemon.stop() == 0


def test_rubbish_and_a_line_of_100_megabytes(daemon: DaemonProcess) -> None:
    daemon.start()
    (daemon.logs / libtpu_name()).write_bytes(os.urandom(4 << 20) + b"\0" * (1 << 20) + b"\n" + record(1).encode())
    with (daemon.jobs / "train.log").open("wb") as job:
        for _ in range(100):
            job.write(b"TESTEVENT x \xff\x00" * 7_000 + b"\xff\x00 and so on" * 70_000)
        job.write(b"\nTESTEVENT 2 and no more\n")
    daemon.sees(1, 2)
    assert daemon.memory_bytes() < 200 << 20
    assert daemon.api("status")["state"]


# -- its log and its rules


def test_its_log_is_one_json_object_a_line_if_wanted(daemon: DaemonProcess) -> None:
    daemon.configure(more='[log]\nformat = "json"\nlevel = "info"')
    daemon.start()
    (daemon.logs / libtpu_name()).write_text(record(1).replace("no more", "\x1b[2J\u202eno more"))
    daemon.sees(1)
    assert daemon.stop() == 0
    lines = [json.loads(line) for line in daemon.said().splitlines()]
    assert {line["level"] for line in lines} == {"info", "warning"}
    assert any(line["message"].startswith("hang: Event 1. (") for line in lines)


def test_its_log_has_an_event_once_and_a_flood_in_short(daemon: DaemonProcess) -> None:
    daemon.start()
    (daemon.logs / libtpu_name()).write_text("".join(map(record, range(500))))
    wait_for(lambda: "more events; `tpuwatch events` lists them." in daemon.said(), "the end of the flood")
    assert daemon.stop() == 0
    logged = re.findall(r" warning hang: (?:(\d+) times: )?Event ", daemon.said())
    (left_out,) = re.findall(r"… and (\d+) more events", daemon.said())
    assert len(logged) == 20
    assert sum(int(times or 1) for times in logged) + int(left_out) == 500


def test_a_directory_of_rules_with_a_bad_rule(daemon: DaemonProcess) -> None:
    (daemon.rules / "bad.toml").write_text("[[rule]]\nid = 'bad-one'\ncause = 'hang'\nsummary = ''\nmatch = ['(']\n")
    daemon.start()
    assert "bad-one" in daemon.said()
    assert daemon.metric("tpuwatch_rules_refused") == 1
    (daemon.logs / libtpu_name()).write_text(record(1))
    daemon.sees(1)
