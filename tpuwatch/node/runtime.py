"""libtpu's runtime metrics as a witness: HBM, duty cycle, idle time and queue of the programs that hold the TPU.

Every process that holds the TPU serves its own on a port of this machine; while none runs, nobody listens. They are
asked all at once, within one deadline, so that one that hangs does not hold up the others.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from tpuwatch.health.evidence import Answer, Problem, Runtime, RuntimePort
from tpuwatch.node.knock import knock
from tpuwatch.node.runtime_values import HBM_TOTAL, HLO_QUEUE, chips, readings, total

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable

    from tpuwatch.clock import Clock
    from tpuwatch.node.runtime_calls import Replies
    from tpuwatch.node.runtime_values import Readings

DEFAULT_PORTS: Final = (8431, 8432, 8433, 8434)  # where nobody says which
LONGEST_PAUSE: Final = 60.0  # between two attempts on a port that does not answer as it should
MOST_JITTER: Final = 0.4  # seconds by which an interval is longer at most: a hang is to be seen within it and a second
LIST_SECONDS: Final = 600.0  # for so long it is taken that a process knows the metrics that it knew
OK: Final = "OK"
# How gRPC words the answers of servers of another kind.
_FOREIGN: Final = frozenset({"UNIMPLEMENTED", "UNKNOWN", "UNAUTHENTICATED", "PERMISSION_DENIED", "MALFORMED"})

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
    """What is remembered of a port while somebody listens there."""

    served: bool = False  # it has answered as libtpu does
    failures: int = 0  # in a row
    rest_until: float = 0.0  # monotonic; it is not asked before
    failing_from: float = 0.0  # monotonic; when the problem that it has began
    said: RuntimePort | None = None  # last
    metrics: tuple[str, ...] = ()  # to ask it for; empty: it is to be asked which there are
    listed: float = 0.0  # monotonic; when it was asked that
    hbm_total: Readings = field(default_factory=dict)  # since then: it does not change


class RuntimeWitness:
    """Asks the processes on `ports`. Not for several threads at once; times in seconds."""

    def __init__(
        self,
        ports: Iterable[int] | Callable[[], Iterable[int]],
        *,
        clock: Clock,
        dice: random.Random,
        poll_seconds: float = 10.0,
        timeout_seconds: float = 5.0,
        counted: Callable[[str, str], None] = lambda _method, _code: None,
    ) -> None:
        """Ports that become known later are a function, which is called before each poll.

        `counted` is told the method and the code's name of each call.
        """
        fixed = () if callable(ports) else tuple(ports)
        self._ports_now = ports if callable(ports) else lambda: fixed
        self._ports: tuple[int, ...] = ()
        self._clock = clock
        self._dice = dice
        self._poll = poll_seconds
        self.timeout_seconds = timeout_seconds
        self._counted = counted
        self._listeners: dict[int, _Listener] = {}
        self._asked: dict[int, float] = {}  # by port, since when, monotonic, it has owed an answer
        self._last: Answer[Runtime] = Answer()
        self._due = clock.monotonic()

    @property
    def due_in(self) -> float:
        """Seconds until the next poll is due."""
        return max(0.0, self._due - self._clock.monotonic())

    def waiting(self) -> dict[int, float]:
        """For how many seconds each port has owed an answer: 0 where none does. May be called from any thread.

        It grows from the moment of the question, so that a hang is seen before the deadline makes a problem of it.
        """
        asked, now = self._asked.copy(), self._clock.monotonic()
        return {port: max(0.0, now - asked.get(port, now)) for port in self._ports_now()}

    def ask(self) -> Answer[Runtime]:
        """Poll all ports; takes little more than one timeout at most."""
        now = self._clock.time()
        self._ports = tuple(dict.fromkeys(self._ports_now()))
        # Jitter makes an interval longer, never shorter: frequent polls may disturb a runtime that is being reset.
        self._due = self._clock.monotonic() + self._poll + min(0.1 * self._poll, MOST_JITTER) * self._dice.random()
        try:
            self._ask()
        except (ImportError, OSError) as error:  # gRPC is not there, or no descriptor is left
            self._asked.clear()
            return self._silent(Problem.INTERNAL, _INTERNAL.format(error), now)
        said = tuple(port for listener in self._listeners.values() if (port := self._said(listener)) is not None)
        if not said:
            if not self._ports:
                return self._silent(Problem.UNCONFIGURED, _UNCONFIGURED, now)
            return self._silent(Problem.ABSENT, _ABSENT.format(", ".join(map(str, self._ports))), now)
        self._last = Answer(Runtime(said), now, None, "", now)
        return self._last

    def close(self) -> None:
        """Nothing stays open between two polls."""

    def _said(self, listener: _Listener) -> RuntimePort | None:
        """What a port said last. Since when it has had its problem is reckoned anew: when the wall clock jumps, seconds
        of silence must not become hours."""
        if listener.said is None or listener.said.problem is None:
            return listener.said
        since = self._clock.time() - (self._clock.monotonic() - listener.failing_from)
        return replace(listener.said, since=round(since, 2))

    def _silent(self, problem: Problem, detail: str, now: float) -> Answer[Runtime]:
        self._last = Answer(self._last.value, self._last.at, problem, detail, now)
        return self._last

    def _ask(self) -> None:
        start = self._clock.monotonic()
        for port, listener in self._listeners.items():
            if listener.rest_until <= start:
                self._asked.setdefault(port, start)
        open_ports = knock(self._ports, self.timeout_seconds)
        self._listeners = {port: self._listeners.get(port, _Listener()) for port in open_ports}
        due = {port: address for port, address in open_ports.items() if self._listeners[port].rest_until <= start}
        self._asked = {port: self._asked.get(port, start) for port in open_ports if port in due or port in self._asked}
        reachable = {port: address for port, address in due.items() if address is not None}
        for port in due.keys() - reachable.keys():
            self._failed(port, Problem.TIMEOUT)
        if reachable:
            self._call(reachable, start)

    def _call(self, addresses: dict[int, str], start: float) -> None:
        from tpuwatch.node.runtime_calls import call_all  # gRPC: only where something runs

        known = {
            port: listener.metrics
            for port, listener in self._listeners.items()
            if start - listener.listed < LIST_SECONDS
        }
        end, own = start + self.timeout_seconds, len(self._listeners) > 1
        calls: dict[int, tuple[Replies, Problem | None]] = {}
        for port, replies in call_all(addresses, known, self._clock, end, self._counted, own=own):
            problem = problem_of(replies, served=self._listeners[port].served)
            calls[port] = replies, problem
            if problem is not Problem.TIMEOUT:
                del self._asked[port]
        for port in addresses:  # in their order, which numbers the chips
            replies, problem = calls[port]
            if problem is None:
                self._answered(port, replies, start)
            elif problem in (Problem.FOREIGN, Problem.UNREACHABLE) and not knock([port], self.timeout_seconds):
                del self._listeners[port]  # it has ended meanwhile
            else:
                self._failed(port, problem)

    def _answered(self, port: int, replies: Replies, now: float) -> None:
        before = itertools.takewhile(lambda other: other != port, self._listeners)
        taken = {chip.id for other in before if (said := self._listeners[other].said) for chip in said.chips}
        metrics = {name: reply.message.metric for name, reply in replies.metrics.items() if reply.code == OK}
        by_metric = {name: readings(metric) for name, metric in metrics.items() if name != HLO_QUEUE}
        hbm_total = by_metric.setdefault(HBM_TOTAL, self._listeners[port].hbm_total)
        queue = total(metrics[HLO_QUEUE]) if HLO_QUEUE in metrics else None
        answer = RuntimePort(port, chips(by_metric, self._ports.index(port), taken), queue)
        listed = self._listeners[port].listed if replies.supported is None else now
        known = [name for name in metrics if name != HBM_TOTAL] if len(metrics) == len(replies.metrics) else ()
        self._listeners[port] = _Listener(
            served=True, said=answer, metrics=tuple(known), listed=listed, hbm_total=hbm_total
        )

    def _failed(self, port: int, problem: Problem) -> None:
        listener = self._listeners[port]
        pause = min(max(LONGEST_PAUSE, self._poll), self._poll * 2.0 ** min(listener.failures, 20))
        listener.failures += 1
        now = self._clock.monotonic()
        listener.rest_until = now + pause * (1 - 0.5 * self._dice.random())
        if listener.said is None or listener.said.problem is not problem:
            listener.failing_from = now
        detail = _DETAILS[problem].format(port, self.timeout_seconds)
        listener.said = RuntimePort(port, problem=problem, detail=detail)


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
