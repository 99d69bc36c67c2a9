from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.export import samples
from tests.node.agent_server import AgentServer, agent_server, http, status
from tpuwatch.clock import SystemClock
from tpuwatch.export import api
from tpuwatch.health.evidence import Problem, Witness, Word
from tpuwatch.health.verdict import Rung, Sureness, Verdict
from tpuwatch.jsontext import dumps
from tpuwatch.node import agentcall
from tpuwatch.node.agentcall import MAX_REPLY_BYTES, AgentError, Told
from tpuwatch.node.channel import Dialer

CLOCK = SystemClock()
URL = "http://10.0.0.2:9478"


@pytest.fixture
def server() -> Iterator[AgentServer]:
    with agent_server() as server:
        yield server


def ask(url: str, seconds: float = 30.0) -> Told:
    return agentcall.ask(url, Dialer(CLOCK), clock=CLOCK, seconds=seconds)


def failure(url: str, seconds: float = 30.0) -> AgentError:
    with pytest.raises(AgentError) as caught:
        ask(url, seconds)
    return caught.value


def test_what_a_real_daemon_serves_is_understood(server: AgentServer) -> None:
    server.reply = json.loads(dumps(api.status_document(samples.watching(Verdict.RUNTIME_STUCK))))
    told = ask(server.url)
    assert (told.project, told.zone, told.node) == ("research-7", "us-central2-b", "train-1")
    assert told.word == Word(
        Verdict.RUNTIME_STUCK,
        Rung.RESTART_RUNTIME,
        Sureness.LIKELY,
        "libtpu's runtime has not answered for 12 min while process 4242 holds the TPU.",
        frozenset({Witness.RUNTIME, Witness.HOST, Witness.LOGS}),
        age=1.0,
    )
    (request,) = server.asked
    assert request.startswith(b"GET /api/v1/status HTTP/1.1\r\n")
    assert b"User-Agent: tpuwatch/" in request


def test_an_address_may_have_a_path_before_it(server: AgentServer) -> None:
    assert ask(f"{server.url}/proxied/").node == "train-2"
    assert server.asked[0].startswith(b"GET /proxied/api/v1/status ")


def test_one_that_has_not_judged_yet_has_no_word() -> None:
    for node in (None, {}, {"verdict": "healthy"}, {"verdict": "new", "judged_epoch": 1.0}, "x"):
        assert agentcall.told({**status(), "node": node}, URL).word is None


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        "x",
        {},
        {"now_epoch": 1.0},
        {**status(), "now_epoch": True},
        {**status(), "now_epoch": float("nan")},
        {**status(), "now_epoch": 10**400},
        {**status(), "witnesses": 1},
    ],
)
def test_what_is_no_status_is_foreign(document: Any) -> None:
    with pytest.raises(AgentError, match="is no tpuwatch") as caught:
        agentcall.told(document, URL)
    assert caught.value.problem is Problem.FOREIGN
    assert (caught.value.silent, caught.value.refused) == (False, False)


def test_values_that_nobody_should_give_are_left_out_or_cut() -> None:
    reasons = [{"witness": "host"}, {"witness": "wizard"}, {"witness": ["x"]}, 5, *[{"witness": "runtime"}] * 1000]
    document = status(rung="explode", sureness=7, summary="a\n\x1b[31m" + "x" * 10_000, reasons=reasons)
    document["identity"]["zone"] = {"value": 7}
    document["identity"]["project"] = "p"
    told = agentcall.told(document, URL)
    assert (told.zone, told.project) == ("", "")
    assert told.word is not None
    assert (told.word.rung, told.word.sureness) == (Rung.ASK, Sureness.WEAK)
    assert told.word.witnesses == {Witness.HOST, Witness.RUNTIME}
    assert len(told.word.summary) <= 200
    assert told.word.summary.isprintable()
    assert agentcall.told(status(reasons={"witness": "host"}), URL).word == Word(
        Verdict.HEALTHY, Rung.NOTHING, Sureness.CERTAIN, "So it is.", frozenset(), 2.0
    )
    future = agentcall.told(status(judged_epoch=2000.0), URL).word
    assert future is not None
    assert future.age == 0.0


@pytest.mark.parametrize(
    ("reply", "problem", "words"),
    [
        (b"SSH-2.0-OpenSSH\r\n", Problem.FOREIGN, "no JSON over HTTP"),
        (http(b"<html>"), Problem.FOREIGN, "no JSON over HTTP"),
        (http(b"\xff\xfe\x00"), Problem.FOREIGN, "no JSON over HTTP"),
        (http(b"[" * 200_000), Problem.FOREIGN, "no JSON over HTTP"),
        (http(b'"' + b"x" * MAX_REPLY_BYTES), Problem.FOREIGN, "larger than"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n", Problem.FOREIGN, "no JSON over HTTP"),
        (http(b"", "301 Moved", Location="http://127.0.0.1:1/"), Problem.FOREIGN, "answered 301"),
        (http(b"", "404 Not Found"), Problem.FOREIGN, "answered 404"),
        (http(b"", "503 Busy"), Problem.SERVER, "answered 503"),
    ],
    ids=lambda value: value[:24].decode(errors="replace") if isinstance(value, bytes) else "",
)
def test_what_answers_otherwise_is_neither_silent_nor_refused(
    server: AgentServer, reply: bytes, problem: Problem, words: str
) -> None:
    server.reply = reply
    error = failure(server.url)
    assert (error.problem, error.silent, error.refused) == (problem, False, False)
    assert words in str(error)
    assert str(error).endswith(".")


def test_one_that_takes_the_connection_and_does_not_answer_is_silent(server: AgentServer) -> None:
    server.reply = None
    error = failure(server.url, 0.05)
    assert (error.problem, error.silent, error.refused) == (Problem.TIMEOUT, True, False)


def test_a_reply_that_comes_drop_by_drop_does_not_outlast_the_deadline() -> None:
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drip() -> None:
            connection, _ = listener.accept()
            with connection:
                try:
                    while not stop.wait(0.01):
                        connection.sendall(b"H")
                except OSError:
                    return

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        error = failure(f"http://127.0.0.1:{listener.getsockname()[1]}", 0.2)
        stop.set()
        thread.join(30)
    assert error.problem in (Problem.TIMEOUT, Problem.FOREIGN)  # or its line grew too long before


def test_a_machine_that_refuses_is_there(server: AgentServer) -> None:
    server.close()
    error = failure(server.url)
    assert (error.problem, error.silent, error.refused) == (Problem.UNREACHABLE, False, True)
    assert "the machine is there" in str(error)


@pytest.mark.parametrize("reply", [b"", http(b"{}" * 100)[:-50]])
def test_a_connection_that_breaks_is_one_that_is_refused(server: AgentServer, reply: bytes) -> None:
    server.reply = reply
    assert failure(server.url).refused


@pytest.mark.parametrize(
    ("error", "silent", "words"),
    [
        (OSError(113, "No route to host"), True, "cannot be reached"),
        (OSError(101, "Network is unreachable"), False, "this machine's own network"),
        (OSError(24, "Too many open files"), False, "this machine's own network"),
        (socket.gaierror(-2, "Name or service not known"), False, "could not be looked up"),
    ],
)
def test_a_fault_of_this_machine_is_no_silence_of_the_other(
    monkeypatch: pytest.MonkeyPatch, error: OSError, silent: bool, words: str
) -> None:
    def fail(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(Dialer, "connection", fail)
    failed = failure(URL)
    assert (failed.silent, failed.refused) == (silent, False)
    assert words in str(failed)
