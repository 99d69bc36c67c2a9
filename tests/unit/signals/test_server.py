"""The signal of a server of models."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import choose_encoder

from tests.standins import model_server
from tests.standins.peer_server import PeerServer, http, peer_server
from tpuwatch.core.clock import ManualClock, SystemClock
from tpuwatch.model.answers import Answer, Problem
from tpuwatch.model.workload import ModelServer
from tpuwatch.signals import server as server_signal
from tpuwatch.signals.server import MAX_REPLY_BYTES, MAX_SERIES, ServerError, ServerSignal, read_counts

URL = "http://127.0.0.1:8000/metrics"
EXEMPLAR = ' # {trace_id="3f2a"} 1.0 1789843202.3'


@pytest.fixture
def server() -> Iterator[PeerServer]:
    with peer_server() as server:
        yield server


def serve(server: PeerServer, text: str) -> None:
    server.reply = http(text.encode(), **{"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})


def ask(url: str, seconds: float = 30.0) -> Answer[ModelServer]:
    return ServerSignal(url, clock=SystemClock(), timeout_seconds=seconds).ask()


# -- the pages


@pytest.mark.parametrize(
    ("page", "software", "running", "waiting"),
    [
        (model_server.vllm(3, 1), "vLLM", 3, 1),
        (model_server.vllm(3, 1, engines=2), "vLLM", 6, 2),
        (model_server.vllm(), "vLLM", 0, 0),
        (model_server.sglang(162.0, 2826.0), "SGLang", 162, 2826),
        (model_server.jetstream(), "JetStream", 0, 0),
        (model_server.jetstream(4, 9), "JetStream", 0, 4),
        ("sglang:cache_hit_rate 0.0\n", "SGLang", 0, 0),  # before its first request it has little more
    ],
)
def test_what_servers_report_of_their_requests(page: str, software: str, running: int, waiting: int) -> None:
    counts = read_counts(page, URL)
    assert (counts.software, counts.running, counts.waiting) == (software, running, waiting)


def test_what_the_client_library_of_all_three_writes_is_read() -> None:
    registry = CollectorRegistry()
    Gauge("vllm:num_requests_running", "…", ["engine"], registry=registry).labels("0").set(3)
    Counter("vllm:generation_tokens", "…", ["engine"], registry=registry).labels("0").inc(7, {"trace_id": "3f2a"})
    Histogram("vllm:iteration_tokens_total", "…", ["engine"], registry=registry).labels("0").observe(5)
    encode, _ = choose_encoder(server_signal.HEADERS["Accept"])
    counts = read_counts(encode(registry).decode(), URL)
    assert (counts.software, counts.running, counts.progress) == ("vLLM", 3, {"vllm:generation_tokens_total": 7.0})


def test_only_the_very_names_count() -> None:
    counts = read_counts(model_server.vllm(tokens=5000, engines=2), URL)
    tokens = {"vllm:generation_tokens_total": 10000.0, "vllm:prompt_tokens_total": 24000.0}
    assert counts.progress == {**tokens, "vllm:request_success_total": 34.0}


def test_exemplars_times_and_labels_with_anything_in_them_are_read() -> None:
    odd = 'vllm:num_requests_running{engine="0",model_name="a } # {x} \\"b\\" , 9"} 2.0 1789843202000\n'
    counts = read_counts(f'{odd}vllm:generation_tokens_total{{engine="0"}} 7.0{EXEMPLAR}\n# EOF\n', URL)
    assert (counts.running, counts.progress) == (2, {"vllm:generation_tokens_total": 7.0})


@pytest.mark.parametrize(("value", "requests"), [("NaN", 0), ("+Inf", 0), ("-5", 0), ("1e300", 10**9), ("0.4", 0)])
def test_no_value_breaks_a_number_of_requests(value: str, requests: int) -> None:
    assert read_counts(f"vllm:num_requests_running {value}\n", URL).running == requests


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("", "no metrics of a server that is known (vLLM, SGLang, JetStream). Check metrics_url under [workload]."),
        ("<html>vllm:num_requests_running</html>", "no metrics of a server that is known"),
        ("process_open_fds 12.0\n", "no metrics of a server that is known"),
        ('vllm:num_requests_running{engine="0} 3\n', "not in Prometheus' text format"),
        ("vllm:num_requests_running three\n", "not in Prometheus' text format"),
        ("vllm:num_requests_running 1\n" * (MAX_SERIES + 1), "more than 1000 series of vLLM's requests"),
    ],
)
def test_any_other_page_is_another_s(page: str, words: str) -> None:
    with pytest.raises(ServerError) as caught:
        read_counts(page, URL)
    assert (caught.value.problem, words in str(caught.value)) == (Problem.FOREIGN, True)


@given(st.text() | st.text(st.sampled_from('vllm:num_requests_running_total{}="\\# 0123.eE+-\n ')))
def test_any_text_is_read_or_refused(text: str) -> None:
    for page in (text, f"vllm:num_requests_running{text}", f"vllm:generation_tokens_total 1\n{text}"):
        try:
            counts = read_counts(page, URL)
        except ServerError:
            continue
        assert counts.running >= 0
        assert all(map(math.isfinite, counts.progress.values()))


# -- what changes between two pages


def times(server: PeerServer, pages: list[str | None]) -> list[tuple[float | None, float | None]]:
    """For how long, a minute after each page, the server has been stalled, and how long ago it made progress. None: it
    did not answer."""
    clock = ManualClock()
    signal = ServerSignal(server.url, clock=clock)
    found = []
    for page in pages:
        clock.advance(60)
        if page is None:
            server.reply = http(b"", "503 Service Unavailable")
        else:
            serve(server, page)
        seen = signal.ask()
        if seen.problem is None and seen.value is not None:
            ages = (seen.value.stalled_since, seen.value.progressed)
            found.append(tuple(None if when is None else round(clock.time() - when) for when in ages))
    return found  # type: ignore[return-value] # pairs


STUCK = model_server.vllm(3, 1, 5000)


def test_a_server_without_requests_is_never_stalled(server: PeerServer) -> None:
    assert times(server, [model_server.vllm()] * 3) == [(None, None)] * 3


def test_a_server_with_requests_and_no_tokens_is_stalled_since_it_was_first_seen_so(server: PeerServer) -> None:
    assert times(server, [model_server.vllm(), STUCK, STUCK, STUCK]) == [
        (None, None),
        (60, None),
        (120, None),
        (180, None),
    ]


def test_each_token_ends_it_and_so_does_a_moment_without_requests(server: PeerServer) -> None:
    assert times(server, [STUCK, STUCK, model_server.vllm(3, 1, 5001), STUCK, model_server.vllm(), STUCK]) == [
        (0, None),
        (60, None),
        (0, 0),
        (0, 0),  # counters that begin again are progress: the server was started again
        (None, 60),
        (60, 120),
    ]


def test_a_page_that_could_not_be_read_does_not_end_it(server: PeerServer) -> None:
    assert times(server, [STUCK, None, None, STUCK]) == [(0, None), (180, None)]


def test_a_long_answer_of_sglang_is_progress_although_its_tokens_count_at_its_end(server: PeerServer) -> None:
    pages = [model_server.sglang(1, 0, used) for used in (100, 900, 1700)]
    assert times(server, [*pages, pages[-1]]) == [(0, None), (0, 0), (0, 0), (60, 60)]


def test_an_idle_jetstream_has_a_slot_in_use_and_no_requests(server: PeerServer) -> None:
    assert times(server, [model_server.jetstream(), model_server.jetstream(2), model_server.jetstream(2, 1)]) == [
        (None, None),
        (60, None),
        (0, 0),
    ]


# -- the request


def test_one_plain_request_is_made(server: PeerServer) -> None:
    serve(server, STUCK)
    answer = ask(f"{server.url}/metrics")
    assert answer.value is not None
    assert (answer.problem, answer.value.software, answer.value.requests) == (None, "vLLM", 4)
    (request,) = server.asked
    assert request.startswith(b"GET /metrics HTTP/1.1\r\n")
    assert b"Accept: text/plain;version=0.0.4\r\n" in request


@pytest.mark.parametrize(
    ("reply", "problem", "words"),
    [
        (http(b"", "307 Temporary Redirect", Location="/elsewhere"), Problem.FOREIGN, "answered 307"),
        (http(b"", "404 Not Found"), Problem.FOREIGN, "answered 404"),
        (http(b"", "500 Internal Server Error"), Problem.SERVER, "answered 500"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", Problem.FOREIGN, "no HTTP server"),
        (http(b"short")[:-2], Problem.UNREACHABLE, "cut off"),
        (http(b"x" * (MAX_REPLY_BYTES + 1)), Problem.FOREIGN, "larger than 4 MiB"),
    ],
)
def test_what_is_no_page_of_metrics(server: PeerServer, reply: bytes, problem: Problem, words: str) -> None:
    server.reply = reply
    answer = ask(server.url)
    assert (answer.problem, answer.value, words in answer.detail) == (problem, None, True), answer.detail


def test_a_server_that_takes_the_request_and_says_nothing_is_given_up(server: PeerServer) -> None:
    server.reply = None
    answer = ask(server.url, 0.2)
    assert (answer.problem, "did not answer within 0.2 s" in answer.detail) == (Problem.TIMEOUT, True)


def test_where_nobody_listens_no_server_runs(server: PeerServer) -> None:
    server.close()
    answer = ask(server.url)
    assert (answer.problem, "Nobody listens at http://127.0.0.1" in answer.detail) == (Problem.ABSENT, True)


def test_the_last_answer_stays_with_its_time(server: PeerServer) -> None:
    clock = ManualClock()
    signal = ServerSignal(server.url, clock=clock)
    serve(server, STUCK)
    good = signal.ask()
    clock.advance(10)
    server.reply = http(b"", "500 Oh")
    later = signal.ask()
    assert (later.value, later.at, later.tried) == (good.value, good.at, clock.time())
    assert signal.due_in == 10


def test_close_ends_a_request_that_waits(server: PeerServer) -> None:
    server.reply = None
    signal = ServerSignal(server.url, clock=SystemClock(), timeout_seconds=60)
    answers: list[Answer[ModelServer]] = []
    thread = threading.Thread(target=lambda: answers.append(signal.ask()))
    thread.start()
    server.wait(1)
    signal.close()
    thread.join(30)
    assert [answer.problem for answer in answers] == [Problem.UNREACHABLE]
