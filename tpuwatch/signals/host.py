"""The signal of the host: which processes hold the TPU and what they use, memory, out-of-memory kills, the boot."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from tpuwatch.host import Holders, Listeners, ProcFs, parse_numbers, read_memory
from tpuwatch.model import Answer, Host, Problem, Signal
from tpuwatch.signals.identity import metrics_ports
from tpuwatch.signals.probe import probe_event, read_probe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tpuwatch.core import Clock
    from tpuwatch.signals.sources import SignalSources

LOOK_SECONDS: Final = 10.0
_MAX_BYTES: Final = 1 << 18  # of /proc/vmstat
_NO_KILLS = "Out-of-memory kills are not counted by this kernel (oom_kill in /proc/vmstat): its log shows them."
_NO_PROC = "This machine cannot be looked at, since {} shows no process and no uptime: mount /proc."


class HostSignal:
    """Looks at the machine below `root`. Not for several threads at once."""

    def __init__(
        self,
        *,
        clock: Clock,
        root: Path = Path("/"),
        ports: Callable[[], Iterable[int]] = lambda: (),
        state: Path | None = None,
    ) -> None:
        """`ports` are those that runtime metrics may be served on; it is called before each look. `state` is the state
        directory, where probes are left."""
        self._state = state
        self._clock = clock
        self._ports = ports
        self._root = root
        self._processes = ProcFs(root / "proc")
        self._holders = Holders(self._processes, root)
        self._listeners = Listeners(self._processes)
        self._last: Answer[Host] = Answer()
        self._kills: int | None = None
        self._killed: float | None = None

    @property
    def due_in(self) -> float:
        """Seconds until the next look is due."""
        return LOOK_SECONDS

    def ask(self) -> Answer[Host]:
        """Look at the machine now."""
        now = self._clock.time()
        uptime = self._processes.uptime()
        if uptime is None and not self._processes.pids():
            detail = _NO_PROC.format(self._root / "proc")
            self._last = Answer(self._last.value, self._last.at, Problem.INTERNAL, detail, now)
        else:
            self._last = Answer(self._look(now, uptime), now, None, "", now)
        return self._last

    def close(self) -> None:
        """There is nothing to let go of."""

    def _look(self, now: float, uptime: float | None) -> Host:
        booted = None if uptime is None else now - uptime
        held = self._holders.look(booted, self._clock.monotonic())
        memory = read_memory(self._processes, self._root, (holder.pid for holder in held.holders), held.pinned_bytes)
        kills = self._count_kills(now)
        return Host(
            boot_id=self._boot_id(),
            booted=booted,
            holders=held.holders,
            lock_file=held.lock_file,
            memory_total_bytes=memory.total,
            memory_available_bytes=memory.available,
            memory_pinned_bytes=memory.pinned,
            oom_kills=kills,
            last_oom_kill=self._killed,
            unseen=held.unseen if kills is not None else (*held.unseen, _NO_KILLS),
            listeners=self._listeners.look(self._ports(), held.sockets, now, self._clock.monotonic()),
            probe=None if self._state is None else read_probe(self._state),
        )

    def _boot_id(self) -> str:
        text = self._processes.boot_id()
        return text if text.replace("-", "").isalnum() else ""

    def _count_kills(self, now: float) -> int | None:
        # The kernel counts those of cgroups here too.
        kills = parse_numbers(self._processes.read("vmstat", _MAX_BYTES)).get("oom_kill")
        if kills is not None:
            if self._kills is not None and kills > self._kills:
                self._killed = now
            self._kills = kills
        return kills


def start(sources: SignalSources) -> None:
    """Add the source that looks at the machine."""
    config = sources.config
    announced = ""  # the id of the last probe

    def ports() -> tuple[int, ...]:
        return metrics_ports(sources.identity()) if config.runtime.enabled else ()

    def on_answer(answer: Answer[Host]) -> None:
        nonlocal announced
        sources.post(Signal.HOST, answer)
        host = None if answer.problem else answer.value
        sources.metrics.node.set_host(host)
        probe = host.probe if host is not None else None
        if probe is not None and probe.id != announced:
            announced = probe.id
            sources.on_event(probe_event(probe))

    source = HostSignal(clock=sources.clock, root=config.host.root, ports=ports, state=config.state.dir)
    sources.add("host", source, LOOK_SECONDS, on_answer)
