"""What tpuwatch itself needs: directory, address, daemon, unit, disk."""

from __future__ import annotations

import datetime as dt
import json
import socket
from typing import Any

import pytest

from tests.standins.certificates import Authority
from tests.standins.doctor_machine import STRANGER, Place, described, expect, serving, statuses
from tests.standins.runtime_server import RuntimeProcess, listening, refused
from tpuwatch.core import HttpError, HttpFault
from tpuwatch.core.clock import SystemClock
from tpuwatch.doctor.check import CheckStatus
from tpuwatch.doctor.environment import CommandResult, fetch

STATE = "/var/lib/tpuwatch"
STATUS = {"version": "0.1.0", "ready": True, "not_ready": [], "problems": []}


def config(listen: str = "127.0.0.1:9478") -> dict[str, Any]:
    return {"cloud": {"enabled": False}, "http": {"listen": listen}}


def unit(**properties: str) -> Any:
    """systemctl, which shows these properties."""
    return lambda *_, **__: CommandResult(0, "".join(f"{name}={value}\n" for name, value in properties.items()))


def test_disk_for_the_store(place: Place) -> None:
    assert statuses("disk", place.environment()) == [CheckStatus.OK]
    (line,) = described("disk", place.environment(disk=lambda _: (1 << 40, 0, 100 << 20)))
    assert line.startswith("wrong: 100 MiB of 1 TiB are free under /var/lib/tpuwatch; the store may take 320 MiB")
    assert "Free 220 MiB there, or lower max_mib" in line


def test_ports_of_runtime_metrics(place: Place) -> None:
    def with_ports(*ports: int, enabled: bool = True) -> Any:
        return place.environment(config={"cloud": {"enabled": False}, "runtime": {"ports": ports, "enabled": enabled}})

    with refused() as nobody, listening(lambda each: each.sendall(b"SSH-2.0-OpenSSH\r\n")) as other:
        expect("runtime_ports", with_ports(nobody), f"skipped: Nobody listens on any of the ports {nobody} ")
        (line,) = described("runtime_ports", with_ports(nobody, other))
        assert line.startswith(f"wrong: Something else than libtpu's runtime metrics is on port {other}")
        assert f"sport = :{other}" in line
        assert statuses("runtime_ports", with_ports(other, enabled=False)) == [CheckStatus.SKIPPED]
    process = RuntimeProcess({})
    try:
        assert statuses("runtime_ports", with_ports(process.port)) == [CheckStatus.OK]
    finally:
        process.stop()


def test_the_state_directory(place: Place) -> None:
    assert statuses("state_directory", place.environment()) == [CheckStatus.OK]  # can be made
    place.folder(STATE, 0o700)
    assert statuses("state_directory", place.environment()) == [CheckStatus.OK]
    (line,) = described("state_directory", place.environment(me=STRANGER))
    assert line.startswith("warn: /var/lib/tpuwatch belongs to ")
    assert "sudo install -d -o 54321 /var/lib/tpuwatch" in line
    with_unit = place.environment(me=STRANGER, run=unit(LoadState="loaded", ActiveState="active"))
    assert statuses("state_directory", with_unit) == [CheckStatus.OK]


def test_a_state_directory_that_cannot_be_made(place: Place) -> None:
    place.folder("/var/lib", 0o755)
    assert (
        "does not exist, and 54321 cannot create it" in described("state_directory", place.environment(me=STRANGER))[0]
    )
    place.write(STATE)
    assert statuses("state_directory", place.environment()) == [CheckStatus.WRONG]


def test_an_address_that_is_free(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
    assert statuses("listen_address", place.environment(config=config(listen), fetch=fetch)) == [CheckStatus.OK]
    assert statuses("listen_address", place.environment(config=config("127.0.0.1:0"))) == [CheckStatus.OK]


def test_an_address_that_is_ours(place: Place) -> None:
    large = {**STATUS, "findings": ["of thousands of nodes"] * 100_000}
    with serving({"/api/v1/status": json.dumps(large)}) as address:
        (line,) = described("listen_address", place.environment(config=config(address), fetch=fetch))
    assert line == f"ok: tpuwatch 0.1.0 serves at {address}. | "


@pytest.mark.parametrize("page", ["hello", "[]", '{"version": "1"}'])
def test_an_address_that_another_program_has(place: Place, page: str) -> None:
    with serving({"/api/v1/status": page}) as address:
        (line,) = described("listen_address", place.environment(config=config(address), fetch=fetch))
    assert line.startswith(f"wrong: {address} is in use by another program")
    assert f"sudo ss -ltnp 'sport = :{address.rpartition(':')[2]}'" in line


def test_an_address_that_never_answers(place: Place) -> None:
    def silent(*_: Any, **__: Any) -> Any:
        raise HttpError(HttpFault.TIMEOUT, "2 s")

    (line,) = described("listen_address", place.environment(fetch=silent))
    assert "in use by something that does not answer in time" in line


def test_an_address_of_another_machine(place: Place) -> None:
    (line,) = described("listen_address", place.environment(config=config("192.0.2.1:9478")))
    assert line.startswith("wrong: 192.0.2.1:9478 cannot be listened on")


def test_the_daemon(place: Place) -> None:
    expect("daemon", place.environment(), "warn: No daemon answers at 127.0.0.1:9478")
    pages: dict[str, str] = {"/api/v1/status": json.dumps(STATUS)}
    with serving(pages) as address:
        place.write(f"{STATE}/http.address", f"{address}\n")  # it serves where its note says
        assert described("daemon", place.environment(fetch=fetch)) == [f"ok: The daemon at {address} is ready. | "]
        problem = {"path": "/x/tpu_driver.\x1b", "reason": "it is a link"}
        bad = {**STATUS, "ready": False, "not_ready": ["The loop logs is stuck."], "problems": [problem]}
        pages["/api/v1/status"] = json.dumps(bad)
        lines = described("daemon", place.environment(fetch=fetch))
    assert [line.partition(":")[0] for line in lines] == ["wrong", "warn"]
    assert "is not ready: The loop logs is stuck." in lines[0]
    assert "does not read 1 files. /x/tpu_driver. : it is a link" in lines[1]


@pytest.mark.parametrize(
    ("properties", "status", "said"),
    [
        ({"LoadState": "not-found"}, "skipped", "There is no tpuwatch.service"),
        ({"LoadState": "loaded", "ActiveState": "active"}, "ok", "tpuwatch.service is active"),
        ({"LoadState": "loaded", "ActiveState": "failed", "Result": "exit-code"}, "wrong", "tpuwatch config check"),
        ({"LoadState": "loaded", "ActiveState": "failed", "Result": "watchdog"}, "wrong", "has failed (watchdog)"),
        ({"LoadState": "loaded", "ActiveState": "inactive"}, "warn", "sudo systemctl enable --now tpuwatch"),
        (
            {"LoadState": "loaded", "ActiveState": "active", "UnitFileState": "disabled"},
            "warn",
            "will not start at the next boot",
        ),
        ({"LoadState": "loaded", "ActiveState": "active", "NRestarts": "7"}, "warn", "was restarted 7 times"),
        ({"LoadState": "loaded", "ActiveState": "active", "PrivateTmp": "yes"}, "wrong", "PrivateTmp=yes hides"),
        ({"LoadState": "loaded", "ActiveState": "active", "DynamicUser": "yes"}, "wrong", "DynamicUser=yes hides"),
    ],
)
def test_the_unit(place: Place, properties: dict[str, str], status: str, said: str) -> None:
    expect("service", place.environment(run=unit(**properties)), f"{status}: ", said)


def test_no_systemd(place: Place) -> None:
    assert statuses("service", place.environment()) == [CheckStatus.SKIPPED]
    assert statuses("service", place.environment(run=lambda *_, **__: CommandResult(1, ""))) == [CheckStatus.SKIPPED]


def test_the_certificate_and_the_token(place: Place) -> None:
    def given(**keys: str) -> Any:
        return place.environment(config={"cloud": {"enabled": False}, "http": keys}, clock=SystemClock())

    assert statuses("http_files", given()) == [CheckStatus.SKIPPED]
    authority = Authority(place.root / "tls")
    files = {"certificate_file": "/tls/server.pem", "key_file": "/tls/server.key"}
    for days, word in ((30, "ok: "), (9, "warn: "), (-1, "wrong: ")):
        authority.issue("tpu.example.org", valid=dt.timedelta(days=days) - dt.timedelta(hours=-1 if days > 0 else 1))
        (line,) = described("http_files", given(**files))
        assert line.startswith(f"{word}The certificate for tpu.example.org "), line
    place.write("/tls/token", "short\n")
    (place.root / "tls/token").chmod(0o600)
    (line,) = described("http_files", given(token_file="/tls/token"))  # noqa: S106 # a file
    assert "token 1 is no token of at least 16" in line
