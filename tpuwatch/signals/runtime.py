"""The signal of libtpu's runtime metrics: HBM, duty cycle, idle time and queue of the programs that hold the TPU.

Every process that holds the TPU serves its own on a port of this machine; while none runs, no port is open. They are
asked all at once, within one deadline, so that one that hangs does not hold up the others.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import select
import socket
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from tpuwatch.core import doubled
from tpuwatch.libtpu import HBM_TOTAL, HLO_QUEUE, chips, readings, total
from tpuwatch.model import Answer, Problem, Runtime, RuntimePort, Signal
from tpuwatch.signals.identity import metrics_ports

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable

    from tpuwatch.core import Clock
    from tpuwatch.libtpu import Readings
    from tpuwatch.signals.runtime_calls import Replies
    from tpuwatch.signals.sources import SignalSources


MAX_PAUSE: Final = 60.0  # between two attempts on a port that does not answer as it should
MAX_JITTER: Final = 0.4  # seconds by which an interval is longer at most: a hang is to be seen within it and a second
LIST_SECONDS: Final = 600.0  # for so long it is taken that a process knows the metrics that it knew
OK: Final = "OK"
# How gRPC words the answers of servers of another kind.
_FOREIGN: Final = frozenset({"UNIMPLEMENTED", "UNKNOWN", "UNAUTHENTICATED", "PERMISSION_DENIED", "MALFORMED"})

_LOOPBACK: Final = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))
_ABSENT = "Nobody listens on any of the ports {} of this machine, as is normal while no program holds the TPU."
_UNCONFIGURED = "No port is known that runtime metrics may be served on: set [runtime] ports."
_INTERNAL = "tpuwatch cannot ask for runtime metrics ({}): restart it, and if that does not help, reinstall it."
_DETAILS: Final = {
    Problem.TIMEOUT: "Port {} is open but nothing answers within {:g} s: the process that holds it hangs, or is busy.",
    Problem.FOREIGN: "Something else than libtpu's runtime metrics is on port {}: set [runtime] ports.",
    Problem.UNREACHABLE: "The connection to port {} broke: the process is ending, or its runtime is being reset.",
    Problem.SERVER: "The process on port {} answered every request for a metric with an error.",
}


@dataclass(slots=True)
class _Listener:
    """The state of a port while a process listens there."""

    served: bool = False  # it has answered as libtpu does
    failures: int = 0  # in a row
    rest_until: float = 0.0  # monotonic; it is not asked before
    failing_from: float = 0.0  # monotonic; when the problem that it has began
    answer: RuntimePort | None = None  # the last one
    metrics: tuple[str, ...] = ()  # to ask it for; empty: it is to be asked which there are
    listed: float = 0.0  # monotonic; when it was asked that
    hbm_total: Readings = field(default_factory=dict)  # since then: it does not change


class RuntimeSignal:
    """Asks the processes on these ports. Not for several threads at once; times in seconds."""

    def __init__(
        self,
        ports: Callable[[], Iterable[int]],
        *,
        clock: Clock,
        rng: random.Random,
        poll_seconds: float = 10.0,
        timeout_seconds: float = 5.0,
        on_call: Callable[[str, str], None] = lambda _method, _code: None,
    ) -> None:
        """`ports` is called before each poll, `on_call` with the method and the code's name of each call."""
        self._ports_now = ports
        self._ports: tuple[int, ...] = ()
        self._clock = clock
        self._rng = rng
        self._poll = poll_seconds
        self.timeout_seconds = timeout_seconds
        self._on_call = on_call
        self._listeners: dict[int, _Listener] = {}
        self._pending_since: dict[int, float] = {}  # by port, monotonic start of a request without an answer
        self._last: Answer[Runtime] = Answer()
        self._due = clock.monotonic()

    @property
    def due_in(self) -> float:
        """Seconds until the next poll is due."""
        return max(0.0, self._due - self._clock.monotonic())

    def pending(self) -> dict[int, float]:
        """Return for how many seconds a response of each port has been pending, 0 for none. For any thread.

        It grows from the request on, so that a hang is seen before the deadline makes a problem of it.
        """
        asked, now = self._pending_since.copy(), self._clock.monotonic()
        return {port: max(0.0, now - asked.get(port, now)) for port in self._ports_now()}

    def ask(self) -> Answer[Runtime]:
        """Poll all ports; takes little more than two timeouts at most: to connect, and for the answers."""
        now = self._clock.time()
        self._ports = tuple(dict.fromkeys(self._ports_now()))
        # Jitter makes an interval longer, never shorter: frequent polls may disturb a runtime that is being reset.
        self._due = self._clock.monotonic() + self._poll + min(0.1 * self._poll, MAX_JITTER) * self._rng.random()
        try:
            self._ask()
        except (ImportError, OSError) as error:  # gRPC is not there, or no descriptor is left
            self._pending_since.clear()
            return self._silent(Problem.INTERNAL, _INTERNAL.format(error), now)
        ports = tuple(port for listener in self._listeners.values() if (port := self._latest(listener)) is not None)
        if not ports:
            if not self._ports:
                return self._silent(Problem.UNCONFIGURED, _UNCONFIGURED, now)
            return self._silent(Problem.ABSENT, _ABSENT.format(", ".join(map(str, self._ports))), now)
        self._last = Answer(Runtime(ports), now, None, "", now)
        return self._last

    def close(self) -> None:
        """Nothing stays open between two polls."""

    def _latest(self, listener: _Listener) -> RuntimePort | None:
        """Return a port's last answer, with the start of its problem computed from the monotonic clock: when the wall
        clock jumps, seconds without an answer must not become hours."""
        if listener.answer is None or listener.answer.problem is None:
            return listener.answer
        since = self._clock.time() - (self._clock.monotonic() - listener.failing_from)
        return replace(listener.answer, since=round(since, 2))

    def _silent(self, problem: Problem, detail: str, now: float) -> Answer[Runtime]:
        self._last = Answer(self._last.value, self._last.at, problem, detail, now)
        return self._last

    def _ask(self) -> None:
        start = self._clock.monotonic()
        for port, listener in self._listeners.items():
            if listener.rest_until <= start:
                self._pending_since.setdefault(port, start)
        open_ports = probe_ports(self._ports, self.timeout_seconds)
        self._listeners = {port: self._listeners.get(port, _Listener()) for port in open_ports}
        due = {port: address for port, address in open_ports.items() if self._listeners[port].rest_until <= start}
        self._pending_since = {
            port: self._pending_since.get(port, start)
            for port in open_ports
            if port in due or port in self._pending_since
        }
        reachable = {port: address for port, address in due.items() if address is not None}
        for port in due.keys() - reachable.keys():
            self._failed(port, Problem.TIMEOUT)
        if reachable:
            self._call(reachable, start)

    def _call(self, addresses: dict[int, str], start: float) -> None:
        from tpuwatch.signals.runtime_calls import call_all  # gRPC: only where something runs

        known = {
            port: listener.metrics
            for port, listener in self._listeners.items()
            if start - listener.listed < LIST_SECONDS
        }
        own = len(self._listeners) > 1
        end = self._clock.monotonic() + self.timeout_seconds  # what it took until here is no silence of theirs
        calls: dict[int, tuple[Replies, Problem | None]] = {}
        for port, replies in call_all(addresses, known, self._clock, end, self._on_call, own=own):
            problem = problem_of(replies, served=self._listeners[port].served)
            calls[port] = replies, problem
            if problem is not Problem.TIMEOUT:
                del self._pending_since[port]
        for port in addresses:  # in their order, which numbers the chips
            replies, problem = calls[port]
            if problem is None:
                self._answered(port, replies, start)
            elif problem in (Problem.FOREIGN, Problem.UNREACHABLE) and not probe_ports([port], self.timeout_seconds):
                del self._listeners[port]  # it has ended meanwhile
            else:
                self._failed(port, problem)

    def _answered(self, port: int, replies: Replies, now: float) -> None:
        before = itertools.takewhile(lambda other: other != port, self._listeners)
        taken = {chip.id for other in before if (answer := self._listeners[other].answer) for chip in answer.chips}
        metrics = {name: reply.message.metric for name, reply in replies.metrics.items() if reply.code == OK}
        by_metric = {name: readings(metric) for name, metric in metrics.items() if name != HLO_QUEUE}
        hbm_total = by_metric.setdefault(HBM_TOTAL, self._listeners[port].hbm_total)
        queue = total(metrics[HLO_QUEUE]) if HLO_QUEUE in metrics else None
        answer = RuntimePort(port, chips(by_metric, self._ports.index(port), taken), queue)
        listed = self._listeners[port].listed if replies.supported is None else now
        known = [name for name in metrics if name != HBM_TOTAL] if len(metrics) == len(replies.metrics) else ()
        self._listeners[port] = _Listener(
            served=True, answer=answer, metrics=tuple(known), listed=listed, hbm_total=hbm_total
        )

    def _failed(self, port: int, problem: Problem) -> None:
        listener = self._listeners[port]
        pause = doubled(self._poll, listener.failures, max(MAX_PAUSE, self._poll))
        listener.failures += 1
        now = self._clock.monotonic()
        listener.rest_until = now + pause * (1 - 0.5 * self._rng.random())
        if listener.answer is None or listener.answer.problem is not problem:
            listener.failing_from = now
        detail = _DETAILS[problem].format(port, self.timeout_seconds)
        listener.answer = RuntimePort(port, problem=problem, detail=detail)


def problem_of(replies: Replies, *, served: bool) -> Problem | None:
    """What is wrong with a port by its replies; None if it answers as libtpu does, `served` if it once did."""
    codes = {reply.code for reply in replies.metrics.values()}
    supported = replies.supported.code if replies.supported is not None else None
    if OK in codes or (supported == OK and not codes):
        return None  # a metric that fails is left out
    if supported is not None:
        codes.add(supported)
    if "DEADLINE_EXCEEDED" in codes:
        return Problem.TIMEOUT
    if "UNAVAILABLE" in codes:
        return Problem.UNREACHABLE if served else Problem.FOREIGN
    return Problem.FOREIGN if not served and codes <= _FOREIGN else Problem.SERVER


def probe_ports(ports: Iterable[int], seconds: float) -> dict[int, str | None]:
    """The ports that a process listens on, with the address; None where the connection is not taken in time.

    All ports are asked at once; `seconds` is how long to wait for the next of them. Raises OSError when this process
    may open no more files.
    """
    asked, found = tuple(ports), dict[int, str | None]()
    for family, address in _LOOPBACK:
        found |= _probe(family, address, [port for port in asked if port not in found], seconds)
    return {port: found[port] for port in asked if port in found}


def _probe(family: socket.AddressFamily, address: str, ports: list[int], seconds: float) -> dict[int, str | None]:
    found: dict[int, str | None] = {}
    with contextlib.ExitStack() as sockets:
        pending: dict[int, tuple[int, socket.socket]] = {}  # by descriptor
        poll = select.poll()
        for port in ports:
            try:
                attempt = sockets.enter_context(socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK))
            except OSError as error:
                if error.errno == errno.EAFNOSUPPORT:
                    return found  # this machine has no such addresses
                raise
            if attempt.connect_ex((address, port)) in (0, errno.EINPROGRESS):
                poll.register(attempt, select.POLLOUT)
                pending[attempt.fileno()] = (port, attempt)
        while pending and (ready := poll.poll(seconds * 1000)):
            for descriptor, _ in ready:
                poll.unregister(descriptor)
                port, attempt = pending.pop(descriptor)
                if attempt.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                    found[port] = address
        found |= {port: None for port, _ in pending.values()}
    return found


def start(sources: SignalSources) -> None:
    """Add the source that asks the runtime for its metrics."""
    node, seconds = sources.metrics.node, sources.config.runtime.poll_seconds
    source = RuntimeSignal(
        lambda: metrics_ports(sources.identity()),
        clock=sources.clock,
        rng=sources.rng,
        poll_seconds=seconds,
        on_call=node.count_api_request,
    )

    def on_answer(answer: Answer[Runtime]) -> None:
        sources.post(Signal.RUNTIME, answer)
        runtime = None if answer.problem else answer.value
        node.set_runtime(runtime)
        for port in runtime.ports if runtime is not None else ():
            sources.failures.record(f"runtime on port {port.port}", Answer(problem=port.problem, detail=port.detail))

    node.set_runtime_response_pending(source.pending)
    sources.add("runtime", source, seconds, on_answer, after="identity")
