"""The signal of a server of models: its own Prometheus metrics, by which it has requests and makes progress, or not.

Any process of this machine can serve such a page, so it proves nothing: it shows that a server has nothing to do, or
that somebody should look at it.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from tpuwatch.core import HttpClient, HttpError, HttpFault, TpuwatchError
from tpuwatch.model import Answer, ModelServer, Problem, Signal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tpuwatch.core import Clock
    from tpuwatch.signals.sources import SignalSources

POLL_SECONDS: Final = 10.0
TIMEOUT_SECONDS: Final = 5.0
MAX_REPLY_BYTES: Final = 4 << 20  # with the head; servers with many models write histograms of hundreds of KiB
MAX_SERIES: Final = 1000  # of the metrics that are read
_MAX_REQUESTS: Final = 10**9  # more are no number of requests
HEADERS: Final = {"Accept": "text/plain;version=0.0.4"}
_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_OTHERWISE = "Check metrics_url under [workload]."
_FAULTS: Final = {
    HttpFault.TIMEOUT: (Problem.TIMEOUT, "{url} did not answer within {why}."),
    HttpFault.REFUSED: (Problem.ABSENT, "Nobody listens at {url}, as is normal while no server runs."),
    HttpFault.TOO_LARGE: (Problem.FOREIGN, f"What {{url}} answers is {{why}}. {_OTHERWISE}"),
    HttpFault.NOT_HTTP: (Problem.FOREIGN, f"What answers at {{url}} is no HTTP server ({{why}}). {_OTHERWISE}"),
}


@dataclass(frozen=True, slots=True)
class _Software:
    """The metrics of one server software. What changes with its work, counters and gauges alike, is progress."""

    name: str
    prefix: str
    running: tuple[str, ...]
    waiting: tuple[str, ...]
    progress: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.running, *self.waiting, *self.progress)


_SOFTWARE: Final = (
    _Software(
        "vLLM",
        "vllm:",
        ("vllm:num_requests_running",),
        ("vllm:num_requests_waiting",),
        # A server of embeddings generates no tokens, so prompts and ends count too.
        ("vllm:generation_tokens_total", "vllm:prompt_tokens_total", "vllm:request_success_total"),
    ),
    _Software(
        "SGLang",
        "sglang:",
        ("sglang:num_running_reqs",),
        ("sglang:num_queue_reqs",),
        # Its tokens count when a request ends, which may take long: what is in use changes with each step.
        (
            "sglang:generation_tokens_total",
            "sglang:prompt_tokens_total",
            "sglang:num_requests_total",
            "sglang:num_used_tokens",
            "sglang:token_usage",
            "sglang:gen_throughput",
        ),
    ),
    _Software(
        "JetStream",
        "jetstream_",
        (),  # jetstream_slots_used_percentage counts a slot of an idle server too: the one that it keeps ready
        ("jetstream_prefill_backlog_size", "jetstream_transfer_backlog_size", "jetstream_generate_backlog_size"),
        (
            "jetstream_request_success_count_total",
            "jetstream_time_to_first_token_count",
            "jetstream_time_per_output_token_count",
            "jetstream_time_per_prefill_token_count",
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class ServerCounts:
    """What one page of metrics says."""

    software: str
    running: int
    waiting: int
    progress: Mapping[str, float]  # by metric, over all models and engines


class ServerError(TpuwatchError):
    """No answer that counts."""

    def __init__(self, problem: Problem, message: str) -> None:
        super().__init__(message)
        self.problem = problem


class ServerSignal:
    """Reads the metrics at an address of this machine. Not for several threads at once; times in seconds."""

    def __init__(self, url: str, *, clock: Clock, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._url = url
        self._clock = clock
        self._seconds = timeout_seconds
        self._http = HttpClient(clock)
        self._last: Answer[ModelServer] = Answer()
        self._progress: Mapping[str, float] | None = None  # of the last page
        self._progressed: float | None = None  # these two by the monotonic clock
        self._stalled_from = 0.0

    @property
    def due_in(self) -> float:
        """Seconds until the next look is due."""
        return POLL_SECONDS

    def ask(self) -> Answer[ModelServer]:
        """Read the page once; takes little more than the timeout at most."""
        now = self._clock.time()
        try:
            counts = read_counts(_get(self._url, self._http, self._seconds), self._url)
        except ServerError as error:
            self._last = Answer(self._last.value, self._last.at, error.problem, str(error), now)
        else:
            self._last = Answer(self._server(counts), now, None, "", now)
        return self._last

    def close(self) -> None:
        """End a request that waits."""
        self._http.close()

    def _server(self, counts: ServerCounts) -> ModelServer:
        """The counts with the times of what has changed since the pages before. A page that could not be read changes
        nothing: where the counters are what they were, nothing has come in between."""
        mono = self._clock.monotonic()
        if self._progress is not None and self._progress != counts.progress:
            self._progressed = self._stalled_from = mono
        if self._progress is None or not counts.running + counts.waiting:
            self._stalled_from = mono
        self._progress = counts.progress
        stalled = self._wall(self._stalled_from) if counts.running + counts.waiting else None
        progressed = None if self._progressed is None else self._wall(self._progressed)
        return ModelServer(counts.software, counts.running, counts.waiting, stalled, progressed)

    def _wall(self, mono: float) -> float:
        return round(self._clock.time() - (self._clock.monotonic() - mono), 2)


def read_counts(page: str, url: str) -> ServerCounts:
    """What a page of metrics in Prometheus' text format says. Raises ServerError for any other text."""
    from prometheus_client.parser import text_string_to_metric_families  # only where a server is asked

    lines = [(match[0], line) for line in page.split("\n") if (match := _NAME.match(line))]
    software = next((one for one in _SOFTWARE if any(name.startswith(one.prefix) for name, _ in lines)), None)
    if software is None:
        known = ", ".join(one.name for one in _SOFTWARE)
        raise ServerError(Problem.FOREIGN, f"{url} has no metrics of a server that is known ({known}). {_OTHERWISE}")
    wanted = [line for name, line in lines if name in software.names]
    if len(wanted) > MAX_SERIES:
        text = f"{url} has more than {MAX_SERIES} series of {software.name}'s requests and tokens. {_OTHERWISE}"
        raise ServerError(Problem.FOREIGN, text)
    sums: dict[str, float] = {}
    try:
        for family in text_string_to_metric_families("\n".join(wanted) + "\n"):
            for sample in family.samples:
                if math.isfinite(sample.value):
                    sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
    except ValueError as error:
        text = f"What {url} answers is not in Prometheus' text format. {_OTHERWISE}"
        raise ServerError(Problem.FOREIGN, text) from error
    progress = {name: sums[name] for name in software.progress if name in sums}
    return ServerCounts(software.name, _count(sums, software.running), _count(sums, software.waiting), progress)


def _count(sums: Mapping[str, float], names: Iterable[str]) -> int:
    return int(min(max(0.0, sum(sums.get(name, 0.0) for name in names)), _MAX_REQUESTS))


def _get(url: str, client: HttpClient, seconds: float) -> str:
    """The page at an address. Raises ServerError."""
    try:
        reply = client.request(url, seconds=seconds, max_bytes=MAX_REPLY_BYTES, headers=HEADERS)
    except HttpError as error:
        problem, text = _FAULTS.get(error.fault, (Problem.UNREACHABLE, "{url} cannot be asked ({why})."))
        raise ServerError(problem, text.format(url=url, why=error.detail)) from error
    if reply.status != HTTPStatus.OK:
        problem = Problem.SERVER if reply.status >= HTTPStatus.INTERNAL_SERVER_ERROR else Problem.FOREIGN
        raise ServerError(problem, f"{url} answered {reply.status} to a request for its metrics. {_OTHERWISE}")
    return reply.text


def start(sources: SignalSources) -> None:
    """Add the source that asks the server of models for its metrics."""
    source = ServerSignal(sources.config.workload.metrics_url, clock=sources.clock)
    sources.add("server", source, POLL_SECONDS, partial(sources.post, Signal.SERVER), calls=TIMEOUT_SECONDS)
