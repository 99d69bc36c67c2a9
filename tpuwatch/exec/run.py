"""What is done for the command while it runs, and after it. See docs/exec.md for what is guaranteed."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any, NoReturn

from tpuwatch.errors import TpuwatchError
from tpuwatch.exec import foreground, memory
from tpuwatch.exec.command import end_as, shell_status
from tpuwatch.exec.foreground import Foreground
from tpuwatch.exec.pump import Pump, Rest
from tpuwatch.exec.saying import say
from tpuwatch.exec.spool import Spool, open_file
from tpuwatch.exec.watcher import Counters, Job, Text, Watcher

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tpuwatch.exec.beginning import Beginning
    from tpuwatch.exec.bystander import Bystander
    from tpuwatch.exec.ending import End
    from tpuwatch.exec.streams import Stream, Streams
    from tpuwatch.tune.model import Plan

_SPOOL_SECONDS = 2.0  # for what is in memory to reach the file, after the command's end
_LOOK_SECONDS = 0.05
_NAMES = {1: "<stdout>", 2: "<stderr>"}


def serve(run: Run, begun: Beginning, config: Path | None, report: Path | None) -> NoReturn:
    """Be there for the running command until it has ended, and end as it did."""
    status = run.wait()
    run.copy_all()
    # Of a command that did well and launched nothing, nobody waits to hear: its output may be read to its end later.
    if status == 0 and report is None and run.launched_nothing() and not _go_behind():
        end_as(status)
    end = run.finish(status)
    try:
        _conclude(begun, end, config, report)
    except Exception as error:  # noqa: BLE001 (whatever happens here, the command has ended as it has)
        say(f"the run could not be recorded: {type(error).__name__}: {error}")
    end_as(status)


class Run:
    """The command while it runs, and those who serve it."""

    def __init__(
        self,
        pid: int,
        begun: Beginning,
        streams: Streams,
        bystander: Bystander,
        started: float,
        config: Path | None,
    ) -> None:
        self._pid = pid
        self._bystander = bystander
        self._started = self._ended = started
        self._impatient = _Impatient()
        self._oom_kills = memory.oom_kills()
        counters = Counters()
        self._watcher = Watcher(counters)
        self._spools: dict[int, Spool] = {}
        texts = [self._text(number, stream, counters, begun) for number, stream in enumerate(streams.all)]
        job = Job(begun.launch, started, begun.environ, config, tuple(text for text in texts if text is not None))
        self._watcher.start(job)
        self._pumps = [self._pump(number, stream) for number, stream in enumerate(streams.all)]
        self._running = [pump for pump in self._pumps if pump is not None]
        self._start_pumps()
        for spool in self._spools.values():
            spool.start()
        self._foreground = Foreground(
            pid, echo=bystander, resize=streams.resize, flush=self._flush, others=self._look_after_watcher
        )

    def wait(self) -> int:
        """Until the command has ended; its wait status."""
        status = self._foreground.wait()
        self._bystander.end()
        return status

    def copy_all(self) -> None:
        """The command has ended: have all that it wrote where it was to go."""
        self._ended = time.time()
        foreground.release_stops()
        for pump in self._running:
            pump.end()
        for pump in self._running:
            while not pump.ended(_LOOK_SECONDS) and not self._impatient():
                pass
        for spool in self._spools.values():
            spool.close(_SPOOL_SECONDS)
        self._leave_behind()
        self._watcher.tell_end()

    def launched_nothing(self) -> bool:
        """Whether the watcher, which has looked after the command's end, knows of no log of libtpu's."""
        return self._watcher.logs_found(self._impatient) == 0

    def finish(self, status: int) -> End:
        """Take what was found in the output and in the logs."""
        from tpuwatch.exec.ending import End

        found = self._watcher.finish(self._impatient)
        lost = sum(spool.lost for spool in self._spools.values())
        if found is None or "error" in found:
            why = found["error"] if found is not None else self._watcher.trouble
            say(f"the rules did not see all of the output: {why}; `tpuwatch diagnose FILE` reads what was kept.")
            found = None
        elif lost:
            say(f"{lost} bytes of the output had no room for the rules to read them; nothing is known of these.")
        code = shell_status(status)
        oom = code == 128 + 9 and memory.grew(self._oom_kills, memory.oom_kills())
        return End(self._pid, self._started, self._ended, code, oom, found)

    def _text(self, number: int, stream: Stream, counters: Counters, begun: Beginning) -> Text | None:
        """What of a stream the watcher reads: the file that the command writes, or the copy of what we pass on."""
        name = _NAMES[stream.sink]
        if stream.file is not None:
            return Text(name, stream.file, stream.start, copy=False)
        try:
            file, most = open_file(begun.environ)
        except OSError:
            return None
        self._spools[number] = Spool(file, lambda: counters.taken(number), file_bytes=most)
        return Text(name, file, 0, copy=True)

    def _pump(self, number: int, stream: Stream) -> Pump | None:
        if stream.source is None:
            return None
        spool = self._spools.get(number)
        return Pump(stream.source, stream.sink, None if spool is None else spool.put)

    def _start_pumps(self) -> None:
        """The command waits for them. Where there can be no further thread, those who only look on make room."""
        for pump in self._running:
            while not pump.start():
                self._bystander.end()
                self._watcher.give_way()
                time.sleep(_LOOK_SECONDS)

    def _flush(self, seconds: float) -> None:
        for pump in self._running:
            pump.flush(seconds)

    def _look_after_watcher(self) -> None:
        """If nobody reads any more, nothing is kept for it."""
        if self._watcher.has_ended():
            for spool in self._spools.values():
                spool.drop()

    def _leave_behind(self) -> None:
        """Where processes outlive the command and hold its output, one of ours stays and passes on what they write."""
        held = [pump for pump in self._running if pump.rest is Rest.HELD and pump.ended(0)]
        if not held or not _fork("what its children still write is not passed on"):
            return
        try:
            self._watcher.forget()
            foreground.release()
            copy_rest(held)
        finally:
            os._exit(0)


def _go_behind() -> bool:
    """Have another process do the rest, unseen. Whether this is that process."""
    try:
        if os.fork():
            return False
    except OSError:
        return True  # then this one does it
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    return True


def _fork(otherwise: str) -> bool:
    """Whether this is the new process. Where there can be none, `otherwise` says what comes of it."""
    try:
        return os.fork() == 0
    except OSError as error:
        say(f"{otherwise}: {error.strerror}.")
        return False


def copy_rest(pumps: Sequence[Pump]) -> None:
    """Copy until nobody writes any more, or a signal ends this."""
    threads = [threading.Thread(target=pump.copy_on) for pump in pumps]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class _Impatient:
    """Whether somebody has asked us to end after the command did; once said, it stays so."""

    def __init__(self) -> None:
        self._asked = False

    def __call__(self) -> bool:
        self._asked = self._asked or foreground.asked_to_end()
        return self._asked


def _conclude(begun: Beginning, end: End, config: Path | None, report: Path | None) -> None:
    """Record the run, decide on the next where nobody else does, and tell what there is to tell."""
    from tpuwatch.exec import ending, summary

    launches = ending.launches_of(begun, end)
    trouble = ending.keep(begun, end, launches)
    plan: Plan | None = None
    if not trouble and launches:
        try:
            plan = ending.decide(begun, config) if begun.own else ending.decided_since(begun)
        except TpuwatchError as error:
            trouble = f"{error}."
    told = summary.tuning(begun, plan)
    if end.oom or summary.findings_to_tell(end) or told:
        summary.tell(begun, end, plan)
    if not (begun.own or told or trouble) and ending.calls_for_another(launches):
        say(summary.undecided(begun, config))
    if trouble:
        say(trouble)
    if report is not None:
        _write_report(report, _document(begun, end, plan))


def _document(begun: Beginning, end: End, plan: Plan | None) -> Mapping[str, Any]:
    from tpuwatch.exec.beginning import names

    found = end.found or {}
    return {
        "launch": begun.launch,
        "workload": begun.workload,
        "started_epoch": end.started,
        "ended_epoch": end.ended,
        "exit_status": end.status,
        "host_oom": end.oom,
        "read": end.found is not None,
        "given": {name: begun.environ[name] for name in names(begun.given)},
        "kept": [kept.name for kept in begun.given.kept],
        "findings": found.get("findings", []),
        "launches": found.get("launches", []),
        "next": None if plan is None else {setting.name: setting.value for setting in plan.settings},
    }


def _write_report(path: Path, document: Mapping[str, Any]) -> None:
    from tpuwatch.jsontext import dumps

    try:
        path.write_text(dumps(document, indent=2) + "\n")
    except OSError as error:
        say(f"cannot write {path}: {error.strerror}.")
