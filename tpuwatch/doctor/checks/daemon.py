"""What tpuwatch itself needs on this machine: state directory, HTTP address, daemon, ledger, systemd unit, disk."""

from __future__ import annotations

import contextlib
import errno
import random
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpuwatch.core import ConfigError, HttpError, HttpFault, SystemClock, TpuwatchError, format_size, installed
from tpuwatch.doctor.check import Area, Check, Result, ok, skipped, unknown, warn, wrong
from tpuwatch.doctor.environment import cut, once
from tpuwatch.doctor.google_apis import identity
from tpuwatch.libtpu import counted
from tpuwatch.model import ADDRESS_FILE, Problem
from tpuwatch.web import Access, DaemonAddress

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tpuwatch.doctor.environment import Environment

_OPERATIONS = installed("docs/operations.md")
_RESTART = installed("docs/restart.md")
_UNIT = "tpuwatch.service"
_START = "`sudo systemctl start tpuwatch`, or `tpuwatch run`"
_PROPERTIES = "LoadState,ActiveState,UnitFileState,Result,NRestarts,PrivateTmp,DynamicUser,User"
_MARGIN = 64 << 20  # above the store's limit, for SQLite's write-ahead log
_SECONDS = 2.0
_RENEW_DAYS = 14  # before a certificate ends


def disk(environment: Environment) -> Iterator[Result]:
    """Disk space for the store."""
    state = environment.config.state
    place = _nearest_existing(environment, state.dir)
    total, _, free = environment.disk(place)
    needed = (state.max_mib << 20) + _MARGIN
    text = f"{format_size(free)} of {format_size(total)} are free under {state.dir}"
    if free < needed:
        fix = f"Free {format_size(needed - free)} there, or lower max_mib under [state] (now {state.max_mib})."
        yield wrong(f"{text}; the store may take {format_size(needed)}.", fix, _OPERATIONS)
    else:
        yield ok(f"{text}.")


def _nearest_existing(environment: Environment, path: Path) -> Path:
    """The directory, or its nearest parent that exists."""
    real = environment.path(path)
    while not real.is_dir() and real != environment.root:
        real = real.parent
    return real


def state_directory(environment: Environment) -> Iterator[Result]:
    """The state directory: whether this user's daemon, or the unit's, can write there."""
    folder = environment.config.state.dir
    real = environment.path(folder)
    me = environment.my_name
    if real.exists() and not real.is_dir():
        yield wrong(f"{folder} is not a directory.", f"`rm {folder}`, or change dir under [state]", _OPERATIONS)
        return
    if not real.exists():
        above = _nearest_existing(environment, folder)
        if environment.me.may(above.stat(), "wx"):
            yield ok(f"{folder} does not exist yet; the daemon creates it.")
        else:
            yield _not_ours(environment, f"{folder} does not exist, and {me} cannot create it.")
        return
    entry = real.stat()
    if environment.me.may(entry, "rwx"):
        yield ok(f"{folder} can be written by {me}.")
    else:
        owner = environment.user_name(entry.st_uid)
        yield _not_ours(environment, f"{folder} belongs to {owner}; {me} cannot write there.")


def _not_ours(environment: Environment, text: str) -> Result:
    """No problem if the daemon runs as the user of its unit."""
    if _unit(environment).get("LoadState") == "loaded":
        return ok(f"{text} The unit's user can.")
    folder = environment.config.state.dir
    me = environment.my_name
    fix = f"`sudo install -d -o {me} {folder}`, or give another dir under [state]"
    return warn(f"{text} A daemon run as {me} would keep its store in memory.", fix, _OPERATIONS)


def address(environment: Environment) -> Iterator[Result]:
    """The HTTP address: in use by tpuwatch, or free."""
    listen = environment.config.http.listen
    host, port = environment.config.http.address
    if port == 0:
        yield ok("Any free port is used.")
        return
    try:
        status = _status(environment, listen)
    except HttpError as error:
        if error.fault is HttpFault.TIMEOUT:
            yield _taken(listen, "something that does not answer in time")
            return
        status = None  # if it is another program that answers, the address is not free
    except TpuwatchError as error:
        yield unknown(f"{cut(str(error), 300)}.", environment.sudo)
        return
    if status is not None:
        yield ok(f"tpuwatch {cut(str(status.get('version', '')), 20)} serves at {listen}.")
        return
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind((host, port))
        yield ok(f"{listen} is free.")
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            yield _taken(listen, "another program")
        else:
            fix = "listen under [http]: an address of this machine and a port above 1023"
            yield wrong(f"{listen} cannot be listened on: {error.strerror}.", fix, _OPERATIONS)


def _taken(listen: str, what: str) -> Result:
    return wrong(
        f"{listen} is in use by {what}, so the daemon cannot start.",
        "Give another listen under [http], or find the process: "
        f"`sudo ss -ltnp 'sport = :{listen.rpartition(':')[2]}'`",
        _OPERATIONS,
    )


def _address(environment: Environment) -> str:
    """Where the daemon serves."""
    note = environment.text_or_none(environment.config.state.dir / ADDRESS_FILE) or ""
    return note.strip() or environment.config.http.listen


def daemon(environment: Environment) -> Iterator[Result]:
    """The daemon: whether it runs, is ready, and reads every file."""
    where = _address(environment)
    try:
        status = _status(environment, where)
    except HttpError:
        yield warn(f"No daemon answers at {cut(where)}.", _START, _OPERATIONS)
        return
    except TpuwatchError as error:
        yield unknown(f"{cut(str(error), 300)}.", environment.sudo)
        return
    if status.get("ready") is True:
        yield ok(f"The daemon at {cut(where)} is ready.")
    else:
        reasons = " ".join(str(reason) for reason in _list(status, "not_ready")) or "It gives no reason."
        yield wrong(f"The daemon at {cut(where)} is not ready: {cut(reasons, 300)}", "`tpuwatch status`", _OPERATIONS)
    problems = _list(status, "problems")
    if problems:
        first = problems[0] if isinstance(problems[0], dict) else {}
        named = f"{cut(str(first.get('path')))}: {cut(str(first.get('reason')), 200)}"
        yield warn(f"The daemon does not read {len(problems)} files. {named}", "`tpuwatch status`", _OPERATIONS)


def ledger(environment: Environment) -> Iterator[Result]:
    """The ledger of restarts: whether the daemon can use it, or where none answers, this user."""
    from tpuwatch.restart import ledger_problem

    config = environment.config
    place = environment.path(config.ledger_dir)
    file = place / "ledger.db"
    in_bucket = config.ledger.kind == "gcs"
    with contextlib.suppress(TpuwatchError):
        problem = str(_status(environment, _address(environment)).get("ledger_problem") or "")
        yield _ledger_down(problem) if problem else ok("The daemon can use it.")
        return
    if in_bucket and not config.ledger.bucket:
        yield skipped("`bucket` under [ledger] is not set.")
    elif not in_bucket and not file.exists():
        yield ok("Nothing has been recorded yet.")
    elif not in_bucket and file.is_file() and not environment.me.may(file.stat(), "rw"):
        owner = environment.user_name(file.stat().st_uid)
        yield unknown(f"{config.ledger_dir} belongs to {owner}, and no daemon answers.", "`sudo tpuwatch doctor`")
    else:
        problem = ledger_problem(config, environment.clock, place)
        yield _ledger_down(problem) if problem else ok(f"It can be read and written by {environment.my_name}.")


def _ledger_down(problem: str) -> Result:
    return wrong(cut(problem, 1000), "Do what it says. To try it again: `tpuwatch restarts`", _RESTART)


def _list(document: Mapping[str, Any], key: str) -> list[Any]:
    found = document.get(key)
    return found if isinstance(found, list) else []


def _status(environment: Environment, where: str) -> Mapping[str, Any]:
    """The daemon's status. Raises HttpError without its answer, and TpuwatchError if its files cannot be read."""
    http = environment.config.http
    address = DaemonAddress(where, _real(environment, http.certificate_file), _real(environment, http.token_file))
    reply = environment.once(f"status {where}", lambda: address.get("/api/v1/status", environment.fetch))
    document = reply.json()
    if not isinstance(document, dict) or "version" not in document or "ready" not in document:
        raise HttpError(HttpFault.NOT_JSON, "it is not the status of tpuwatch")
    return document


def _real(environment: Environment, path: str) -> str:
    return str(environment.path(path)) if path else ""


def http_files(environment: Environment) -> Iterator[Result]:
    """The certificate and the tokens under [http], as the daemon would read them, and when the certificate ends."""
    from tpuwatch.config import HttpConfig

    http = environment.config.http
    given = {key: _real(environment, getattr(http, key)) for key in ("certificate_file", "key_file", "token_file")}
    if not any(given.values()):
        yield skipped(f"{http.listen} is served without TLS and without a token.")
        return
    unread = [path for path in given.values() if path and not _may_read(environment, path)]
    if unread:
        yield unknown(f"{environment.my_name} may not read {', '.join(unread)}.", environment.sudo)
        return
    try:
        certificate = Access(HttpConfig.model_validate(given)).certificate
    except ConfigError as error:
        yield wrong(f"{error}.", "Correct it: a daemon that starts with it ends at once.", _OPERATIONS)
        return
    if certificate is None:
        yield ok("The token can be used.")
        return
    days = (certificate.expires - environment.clock.time()) / 86_400
    names = f"The certificate for {', '.join(certificate.names) or 'addresses'}"
    if days <= 0:
        yield wrong(f"{names} has ended.", f"Renew {http.certificate_file}; the daemon reads it again.", _OPERATIONS)
    elif days < _RENEW_DAYS:
        yield warn(f"{names} ends in {days:.1f} days.", f"Renew {http.certificate_file}.", _OPERATIONS)
    else:
        yield ok(f"{names} holds for {days:.0f} days.")


def _may_read(environment: Environment, path: str) -> bool:
    try:
        return environment.me.may(Path(path).stat(), "r")
    except PermissionError:
        return False
    except OSError:
        return True  # it is missing, and that is said


def runtime_ports(environment: Environment) -> Iterator[Result]:
    """What listens on the ports of libtpu's runtime metrics: queried once, as the daemon does."""
    from tpuwatch.signals import RuntimeSignal, metrics_ports

    if not environment.config.runtime.enabled:
        yield skipped("They are disabled: `enabled` under [runtime] is false.")
        return
    known = identity(environment)
    ports = metrics_ports(known)
    # The real clock, because the deadline applies to the network.
    rng = random.Random()  # noqa: S311 (it spreads polls, of which there is one)
    answer = RuntimeSignal(lambda: ports, clock=SystemClock(), rng=rng, timeout_seconds=_SECONDS).ask()
    if answer.problem is not None or answer.value is None:
        yield skipped(answer.detail) if answer.problem is Problem.ABSENT else unknown(answer.detail)
        return
    for port in answer.value.ports:
        if port.problem is None:
            yield ok(f"Port {port.port} reports {counted(len(port.chips), known.accelerator.value)}.")
        elif port.problem is Problem.FOREIGN:
            who = f"`sudo ss -ltnp 'sport = :{port.port}'`"
            fix = f"ports under [runtime]: those of libtpu; the process on this one: {who}"
            yield wrong(port.detail, fix, installed("config.example.toml"))
        else:
            yield unknown(port.detail)


def service(environment: Environment) -> Iterator[Result]:
    """The state and settings of the systemd unit."""
    unit = _unit(environment)
    if not unit:
        yield skipped("systemd does not answer here.")
        return
    if unit.get("LoadState") != "loaded":
        yield skipped(f"There is no {_UNIT}.")
        return
    yield from [*_unit_state(unit), *_unit_settings(unit)] or [ok(f"{_UNIT} is {unit.get('ActiveState')}.")]


def _unit_state(unit: Mapping[str, str]) -> Iterator[Result]:
    active, result = unit.get("ActiveState", ""), cut(unit.get("Result", ""), 40)
    log = "`journalctl -u tpuwatch -n 50`"
    if active == "failed":
        hint = " Its configuration is wrong, then: `tpuwatch config check`" if result == "exit-code" else ""
        yield wrong(
            f"{_UNIT} has failed ({result}).", f"{log}, then: `sudo systemctl restart tpuwatch`.{hint}", _OPERATIONS
        )
    elif active not in ("active", "activating", "reloading"):
        yield warn(f"{_UNIT} is {cut(active, 20)}.", "`sudo systemctl enable --now tpuwatch`", _OPERATIONS)
    elif unit.get("UnitFileState") == "disabled":
        yield warn(f"{_UNIT} will not start at the next boot.", "`sudo systemctl enable tpuwatch`", _OPERATIONS)
    restarts = unit.get("NRestarts", "")
    if restarts.isdecimal() and int(restarts) > 2:
        yield warn(f"{_UNIT} was restarted {restarts} times.", log, _OPERATIONS)


def _unit_settings(unit: Mapping[str, str]) -> Iterator[Result]:
    setting = next((name for name in ("PrivateTmp", "DynamicUser") if unit.get(name) == "yes"), None)
    if setting is not None:
        yield wrong(
            f"{setting}=yes hides /tmp/tpu_logs from {_UNIT}.",
            f"Remove {setting}= from the unit (`systemctl cat {_UNIT}`), then: `sudo systemctl daemon-reload && sudo "
            "systemctl restart tpuwatch`",
            _OPERATIONS,
        )


@once
def _unit(environment: Environment) -> Mapping[str, str]:
    """Properties of the unit; empty if systemd does not answer."""
    ran = environment.run(["systemctl", "show", _UNIT, "-p", _PROPERTIES], seconds=_SECONDS)
    if ran is None or ran.code != 0:
        return {}
    return {name: value for name, _, value in (line.partition("=") for line in ran.output.splitlines())}


CHECKS = (
    Check("disk", "disk for the store", Area.HOST, disk),
    Check("state_directory", "state directory", Area.HOST, state_directory),
    Check("listen_address", "HTTP address", Area.HOST, address),
    Check("http_files", "HTTP certificate and token", Area.HOST, http_files),
    Check("daemon", "daemon", Area.HOST, daemon),
    Check("ledger", "ledger of restarts", Area.HOST, ledger, seconds=20.0),
    Check("runtime_ports", "ports of runtime metrics", Area.HOST, runtime_ports, seconds=8.0),
    Check("service", "systemd unit", Area.HOST, service),
)
