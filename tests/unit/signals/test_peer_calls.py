from __future__ import annotations

import random
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.standins.peer_server import PeerServer, http, peer_server, reason, status
from tests.unit.signals.test_peers import NOW, here, node
from tests.unit.web import samples
from tpuwatch.config.schema import PeersConfig
from tpuwatch.core import HttpClient, HttpError, HttpFault
from tpuwatch.core.clock import SystemClock
from tpuwatch.model.answers import Answer, Problem, Signal
from tpuwatch.model.documents.status import PeerStatusDocument
from tpuwatch.model.signals import PeerVerdict
from tpuwatch.model.verdict import Action, Confidence, Source, Verdict
from tpuwatch.model.workload import WorkloadKind
from tpuwatch.signals import peer_calls
from tpuwatch.signals.peer_calls import MAX_REPLY_BYTES, PeerError, PeerReply
from tpuwatch.signals.peers import PeersSignal

CLOCK = SystemClock()
URL = "http://10.0.0.2:9478"


@pytest.fixture
def server() -> Iterator[PeerServer]:
    with peer_server() as server:
        yield server


def ask(url: str, seconds: float = 30.0) -> PeerReply:
    return peer_calls.ask(url, HttpClient(CLOCK), seconds=seconds)


def failure(url: str, seconds: float = 30.0) -> PeerError:
    with pytest.raises(PeerError) as caught:
        ask(url, seconds)
    return caught.value


def test_what_a_real_daemon_serves_is_understood(server: PeerServer) -> None:
    server.reply = samples.as_json(PeerStatusDocument.of(samples.watching(Verdict.RUNTIME_STUCK)))
    reply = ask(server.url)
    assert (reply.project, reply.zone, reply.node) == ("research-7", "us-central2-b", "train-1")
    assert reply.verdict == PeerVerdict(
        Verdict.RUNTIME_STUCK,
        Action.RESTART_RUNTIME,
        Confidence.MEDIUM,
        "libtpu's runtime has not answered for 12 min while process 4242 holds the TPU.",
        frozenset({Signal.RUNTIME, Signal.HOST, Signal.LOGS}),
        age=1.0,
        sources=frozenset({Source.RUNTIME, Source.TEXT}),  # that the process rests is no fault
    )
    (request,) = server.asked
    assert request.startswith(b"GET /api/v1/peer HTTP/1.1\r\n")
    assert b"User-Agent: tpuwatch/" in request


@pytest.mark.parametrize(("named", "kind"), [("serving", WorkloadKind.SERVING), ("batch", None), (None, None)])
def test_the_kind_of_its_workload_is_understood(named: object, kind: WorkloadKind | None) -> None:
    verdict = peer_calls.read_reply(status(kind=named), URL).verdict
    assert verdict is not None
    assert verdict.kind is kind


def test_an_address_may_have_a_path_before_it(server: PeerServer) -> None:
    assert ask(f"{server.url}/proxied/").node == "train-2"
    assert server.asked[0].startswith(b"GET /proxied/api/v1/peer ")


def test_one_that_has_not_judged_yet_has_no_word() -> None:
    assert peer_calls.read_reply({**status(), "node": None}, URL).verdict is None
    assert peer_calls.read_reply(status(verdict="new"), URL).verdict is None  # of a newer version


@pytest.mark.parametrize(
    ("listed", "sources"),
    [
        (["kernel", "cloud"], {Source.KERNEL, Source.CLOUD}),
        (["kernel", "wizard"], {Source.KERNEL}),
        (["wizard"], {Source.TEXT}),
        ([], {Source.TEXT}),
    ],
)
def test_what_its_word_rests_on_counts_at_its_weakest_where_it_is_not_known(listed: Any, sources: set[Source]) -> None:
    verdict = peer_calls.read_reply(status(sources=listed), URL).verdict
    assert verdict is not None
    assert verdict.sources == sources


def test_a_former_version_reports_no_sources() -> None:
    verdict = peer_calls.read_reply(status(), URL).verdict
    assert verdict is not None
    assert verdict.sources == {Source.TEXT}


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
        {**status(), "signals": 1},
    ],
)
def test_what_is_no_status_is_foreign(document: Any) -> None:
    with pytest.raises(PeerError, match="is no tpuwatch") as caught:
        peer_calls.read_reply(document, URL)
    assert caught.value.problem is Problem.FOREIGN
    assert (caught.value.silent, caught.value.refused) == (False, False)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"identity": {"zone": {"value": 7}}}, "identity.zone.value"),
        ({"identity": {"project": "p"}}, "identity.project"),
        ({"node": "x"}, "node"),
        ({"node": {"verdict": "healthy"}}, "node.node"),
        ({"node": {**status()["node"], "reasons": {"signal": "host"}}}, "node.reasons"),
        ({"node": {**status()["node"], "reasons": [reason("host"), reason(["x"])]}}, "node.reasons[1].signal"),
        ({"node": {**status()["node"], "sources": ["kernel", 7]}}, "node.sources[1]"),
        ({"node": {**status()["node"], "judged_epoch": 1e300}}, "node.judged_epoch"),
        ({"host": {"boot_id": None}}, "host.boot_id"),
    ],
)
def test_a_value_of_another_type_is_named(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(PeerError, match=rf"is no tpuwatch: .*\({re.escape(named)}: "):
        peer_calls.read_reply({**status(), **changes}, URL)


def test_words_that_are_not_known_are_left_out_and_text_is_cut() -> None:
    reasons = [reason("host"), reason("wizard"), *[reason("runtime")] * 1000]
    document = status(action="explode", confidence="7", summary="a\n\x1b[31m" + "x" * 10_000, reasons=reasons)
    reply = peer_calls.read_reply(document, URL)
    assert reply.verdict is not None
    assert (reply.verdict.action, reply.verdict.confidence) == (Action.MANUAL, Confidence.LOW)
    assert reply.verdict.signals == {Signal.HOST, Signal.RUNTIME}
    assert len(reply.verdict.summary) <= 200
    assert reply.verdict.summary.isprintable()
    future = peer_calls.read_reply(status(judged_epoch=2000.0), URL).verdict
    assert future is not None
    assert future.age == 0.0


@pytest.mark.parametrize(
    ("reply", "problem", "words"),
    [
        (b"SSH-2.0-OpenSSH\r\n", Problem.FOREIGN, "no JSON over HTTP"),
        (http(b"<html>"), Problem.FOREIGN, "no JSON over HTTP"),
        (http(b'"' + b"x" * MAX_REPLY_BYTES), Problem.FOREIGN, "larger than"),
        (http(b"", "301 Moved", Location="http://127.0.0.1:1/"), Problem.FOREIGN, "answered 301"),
        (http(b"", "404 Not Found"), Problem.FOREIGN, "answered 404"),
        (http(b"", "503 Busy"), Problem.SERVER, "answered 503"),
    ],
    ids=lambda value: value[:24].decode(errors="replace") if isinstance(value, bytes) else "",
)
def test_what_answers_otherwise_is_neither_silent_nor_refused(
    server: PeerServer, reply: bytes, problem: Problem, words: str
) -> None:
    server.reply = reply
    error = failure(server.url)
    assert (error.problem, error.silent, error.refused) == (problem, False, False)
    assert words in str(error)
    assert str(error).endswith(".")


def test_one_that_takes_the_connection_and_does_not_answer_is_silent(server: PeerServer) -> None:
    server.reply = None
    error = failure(server.url, 0.05)
    assert (error.problem, error.silent, error.refused) == (Problem.TIMEOUT, True, False)


def test_a_machine_that_refuses_is_there(server: PeerServer) -> None:
    server.close()
    error = failure(server.url)
    assert (error.problem, error.silent, error.refused) == (Problem.UNREACHABLE, False, True)
    assert "the machine is there" in str(error)


@pytest.mark.parametrize("reply", [b"", http(b"{}" * 100)[:-50]])
def test_a_connection_that_breaks_is_one_that_is_refused(server: PeerServer, reply: bytes) -> None:
    server.reply = reply
    assert failure(server.url).refused


@pytest.mark.parametrize(
    ("fault", "silent", "words"),
    [
        (HttpFault.NO_ROUTE, True, "cannot be reached"),
        (HttpFault.NETWORK, False, "this machine's own network"),
        (HttpFault.LOCAL, False, "this machine's own network"),
        (HttpFault.NO_NAME, False, "could not be looked up"),
        (HttpFault.LOOKUP, False, "could not be looked up"),
    ],
)
def test_a_fault_of_this_machine_is_no_silence_of_the_other(
    monkeypatch: pytest.MonkeyPatch, fault: HttpFault, silent: bool, words: str
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise HttpError(fault, "as the test says")

    monkeypatch.setattr(HttpClient, "request", fail)
    failed = failure(URL)
    assert (failed.silent, failed.refused) == (silent, False)
    assert words in str(failed)


def test_the_signal_is_closed_while_one_hangs(server: PeerServer) -> None:
    server.reply = None
    config = PeersConfig.model_validate({"addresses": {"train-2": server.url}, "timeout_seconds": 60.0})
    signal = PeersSignal(config, clock=CLOCK, rng=random.Random(5))
    signal.follow({"z/train-2": Answer(node(2), NOW, None, "", NOW)}, here("z/train-1"))
    thread = threading.Thread(target=signal.ask)
    thread.start()
    server.wait(1)
    signal.close()
    thread.join(30)
    assert not thread.is_alive()
