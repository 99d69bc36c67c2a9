"""Is it the TPU, the stack or the program? The TPU computes a known value, and the CPU where the TPU fails."""

from __future__ import annotations

import fcntl
import os
import secrets
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tpuwatch.core import ConfigError, TpuwatchError, clean, like, open_private, places, who_may_change
from tpuwatch.host import Holders, ProcFs, tpu_devices, waited_seconds
from tpuwatch.model import FindingDocument, Probe, ProbeAttemptDocument, ProbeHolder, ProbeReport
from tpuwatch.program.attempt import CHILD, ProbeAttempt, attempt
from tpuwatch.program.probe_verdict import STARVED_SECONDS, Blame, ProbeScene, blame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tpuwatch.core import Clock
    from tpuwatch.model import Holder
    from tpuwatch.program.child import ChildLimits

LOCK: Final = "probe.lock"
_MAX_WAITED: Final = 0.2  # of the time: with more of it spent in waits for disks and memory no deadline means anything


class ProbeBusyError(TpuwatchError):
    """It is not probed now: another probe runs, or a process holds the TPU."""


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """What is to be probed: `command` is the interpreter and its script."""

    command: tuple[str, ...]
    framework: str | None = None  # "jax", "tensorflow" or "torch"; None: the first that the interpreter has
    step: str | None = None  # "module:function" of the user's
    while_held: bool = False  # though a process holds the TPU
    hosts: int = 1  # of the node


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """All that was found, and what it is blamed on."""

    probe: Probe
    scene: ProbeScene
    blame: Blame


def probe_command(python: str) -> tuple[str, ...]:
    """The command that has this interpreter compute."""
    return (python, str(CHILD))


def run_probe(
    request: ProbeRequest,
    *,
    limits: ChildLimits,
    environ: Mapping[str, str],
    on_stage: Callable[[str], None],
    directory: Path,
    root: Path = Path("/"),
    clock: Clock | None = None,
) -> ProbeResult:
    """Probe the TPU, and where that fails, or the user's own step is compared, the CPU.

    `directory` is where the lock is: there is one probe at a time. Raises ProbeBusyError, ConfigError for a step that
    is none, and KeyboardInterrupt, which ends what was started.
    """
    with _lock(directory) as lock:
        before = find_holders(root)
        if before and not request.while_held:
            raise ProbeBusyError(f"{_who(before)}; end it first, or probe beside it: --while-held")
        began, processes = time.time(), ProcFs(root / "proc")

        def try_on(platform: str, framework: str | None) -> ProbeAttempt:
            return attempt(
                platform,
                command=list(request.command),
                framework=framework,
                step=request.step,
                limits=limits,
                environ=environ,
                on_stage=on_stage,
                keep=(lock,),
                clock=clock,
            )

        waited, started = waited_seconds(processes), time.monotonic()
        tpu = try_on("tpu", request.framework)
        pressure = _share(waited, waited_seconds(processes), time.monotonic() - started)
        _refuse_misuse(tpu)
        known = tpu.facts.get("framework")
        cpu = None
        if (tpu.kind and tpu.kind not in ("interpreter", "wrong_build")) or (request.step and not tpu.kind):
            cpu = try_on("cpu", str(known) if known else request.framework)
        after = find_holders(root) if tpu.kind and tpu.ended else ()
        scene = ProbeScene(tpu, cpu, tuple(tpu_devices(root)), tuple(dict.fromkeys((*before, *after))), request.hosts)
    found = blame(scene)
    probe = Probe(
        id=secrets.token_hex(8),
        began=began,
        ended=time.time(),
        boot_id=clean(processes.boot_id(), 64),
        verdict=found.verdict,
        summary=found.summary,
        framework=str(known or ""),
        objection=_objection(request, scene, pressure),
    )
    return ProbeResult(probe, scene, found)


def find_holders(root: Path) -> tuple[Holder, ...]:
    """The processes that hold the TPU, as far as this user can see."""
    return Holders(ProcFs(root / "proc"), root).look(None, time.monotonic()).holders


def changeable_by_others(files: Iterable[str]) -> str:
    """The first of these files, or of the directories above them, that others than root and this user can change; "" if
    there is none. Where they could, they decide what a probe says."""
    for name in files:
        for path in places(Path(name)):
            if not os.path.lexists(path) or who_may_change(path, (0, os.geteuid())):
                return str(path)
    return ""


def probe_document(result: ProbeResult, python: str) -> ProbeReport:
    """What was found."""
    scene, found, probe = result.scene, result.blame, result.probe
    return like(
        ProbeReport,
        probe,
        remedy=found.remedy,
        python=python,
        framework=probe.framework or None,
        began_epoch=probe.began,
        ended_epoch=probe.ended,
        counts=not probe.objection,
        objection=probe.objection or None,
        devices=scene.devices,
        holders=tuple(like(ProbeHolder, one, command=clean(one.command, 200)) for one in scene.holders),
        differences=found.differences,
        attempts=tuple(_attempt_document(one) for one in (scene.tpu, scene.cpu) if one is not None),
        recorded=False,
    )


def _attempt_document(one: ProbeAttempt) -> ProbeAttemptDocument:
    facts = {name: value for name, value in one.facts.items() if name != "results"}
    return like(ProbeAttemptDocument, one, facts=facts, findings=tuple(map(FindingDocument.of, one.findings)))


def _share(before: float | None, after: float | None, seconds: float) -> float | None:
    return None if before is None or after is None else (after - before) / max(seconds, 1e-3)


def _objection(request: ProbeRequest, scene: ProbeScene, pressure: float | None) -> str:
    """Why this is no evidence for the judge, in a sentence; "" if it is."""
    if scene.holders:
        return f"{_who(scene.holders)}."
    pauses = [one.longest_pause for one in (scene.tpu, scene.cpu) if one is not None]
    if max(pauses) >= STARVED_SECONDS:
        return f"The machine was too busy: for {max(pauses):.0f} s nothing could look at the child process."
    if scene.tpu.kind == "timeout" and (pressure is None or pressure > _MAX_WAITED):
        if pressure is None:
            return "It was not done in time, and this kernel does not count waits for disks and memory (PSI)."
        return f"It was not done in time, and for {pressure:.0%} of that programs waited for disks or memory."
    of_tpu = any(finding.cause.row.of_tpu for finding in scene.tpu.findings)
    if scene.tpu.kind in ("error", "died") and scene.tpu.ended and not of_tpu:
        return "The error is not known to be the TPU's own."
    files = [name for one in scene.tpu.facts.get("files", ()) if isinstance(name := one, str)]
    if other := changeable_by_others([request.command[0], sys.executable, *files]):
        return f"Others than root and this user can change {other}, and so what the probe finds."
    return ""


def _refuse_misuse(tpu: ProbeAttempt) -> None:
    if tpu.kind == "usage" and tpu.problem is not None:
        raise ConfigError(str(tpu.problem["message"]))


def _who(holders: tuple[Holder, ...]) -> str:
    first = holders[0]
    more = f", and {len(holders) - 1} more" if len(holders) > 1 else ""
    of = f" of {first.user}" if first.user else ""
    return f"Process {first.pid} ({clean(first.command, 80)}){of} holds the TPU{more}"


@contextmanager
def _lock(directory: Path) -> Iterator[int]:
    """Hold the lock of probes. The child inherits it: while one cannot be ended, no other is started."""
    path = directory / LOCK
    try:
        descriptor = open_private(path, os.O_RDWR)
    except OSError as error:
        raise ConfigError(
            f"cannot lock {path}: {error.strerror}; name a directory by --config or XDG_STATE_HOME"
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ProbeBusyError(
                "another probe runs, or could not be ended: `sudo fuser -v " + str(path) + "` shows its process"
            ) from None
        yield descriptor
    finally:
        os.close(descriptor)
