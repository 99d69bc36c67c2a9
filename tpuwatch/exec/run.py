"""Serves the running command: copies its output, passes signals on, and watches. docs/exec.md has the guarantees."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, NoReturn

from tpuwatch.core import format_size
from tpuwatch.exec import foreground
from tpuwatch.exec.copier import Copier, StreamState
from tpuwatch.exec.foreground import Foreground
from tpuwatch.exec.messages import print_message
from tpuwatch.exec.output_buffer import OutputBuffer, open_file
from tpuwatch.exec.process import end_as, shell_status
from tpuwatch.exec.watcher import Watcher
from tpuwatch.exec.watcher_job import Text, WatcherCounters, WatcherJob
from tpuwatch.host import oom

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tpuwatch.exec.found import FoundDocument
    from tpuwatch.exec.preparation import PreparedRun
    from tpuwatch.exec.run_result import RunResult
    from tpuwatch.exec.signal_sentinel import SignalSentinel
    from tpuwatch.exec.streams import Stream, Streams

_BUFFER_SECONDS = 2.0  # for what is in memory to reach the file, after the command's end
_LOOK_SECONDS = 0.05
_KILLED = 128 + 9  # by SIGKILL
_NAMES = {1: "<stdout>", 2: "<stderr>"}


def serve(run: Run, prepared: PreparedRun, config: Path | None, report: Path | None) -> NoReturn:
    """Be there for the running command until it has ended, and end as it did."""
    status = run.wait()
    run.copy_all()
    # After a command that succeeded and launched nothing no user waits for findings: its output may be read later.
    if status == 0 and report is None and run.launched_nothing() and not _continue_in_background():
        end_as(status)
    from tpuwatch.exec.ending import conclude

    end = run.finish(status)
    try:
        conclude(prepared, end, config, report)
    except Exception as error:  # noqa: BLE001 (whatever happens here, the command has ended as it has)
        print_message(f"the run could not be recorded: {type(error).__name__}: {error}")
    end_as(status)


class Run:
    """The command while it runs, and those who serve it."""

    def __init__(
        self,
        pid: int,
        prepared: PreparedRun,
        streams: Streams,
        sentinel: SignalSentinel,
        started: float,
        oom_counters: oom.OomCounters,
        config: Path | None,
    ) -> None:
        self._pid = pid
        self._sentinel = sentinel
        self._started = self._ended = started
        self._stop_requested = _StopRequest()
        self._root = prepared.root
        self._oom_counters = oom_counters  # before it started
        counters = WatcherCounters()
        self._watcher = Watcher(counters)
        self._buffers: dict[int, OutputBuffer] = {}
        texts = [self._text(number, stream, counters, prepared) for number, stream in enumerate(streams.all)]
        job = WatcherJob(
            prepared.launch, pid, started, prepared.environ, config, tuple(text for text in texts if text is not None)
        )
        self._watcher.start(job)
        self._copiers = [self._copier(number, stream) for number, stream in enumerate(streams.all)]
        self._running = [copier for copier in self._copiers if copier is not None]
        self._start_copiers()
        for buffer in self._buffers.values():
            buffer.start()
        self._foreground = Foreground(
            pid, sentinel=sentinel, resize=streams.resize, flush=self._flush, others=self._drop_unread_output
        )

    def wait(self) -> int:
        """Until the command has ended; its wait status."""
        status = self._foreground.wait()
        self._sentinel.end()
        return status

    def copy_all(self) -> None:
        """The command has ended: have all that it wrote where it was to go."""
        self._ended = time.time()
        foreground.release_stops()
        for copier in self._running:
            copier.end()
        for copier in self._running:
            while not copier.ended(_LOOK_SECONDS) and not self._stop_requested():
                pass
        for buffer in self._buffers.values():
            buffer.close(_BUFFER_SECONDS)
        self._leave_behind()
        self._watcher.report_end()

    def launched_nothing(self) -> bool:
        """Whether the watcher, which has looked after the command's end, knows of no log of libtpu's."""
        return self._watcher.logs_found(self._stop_requested) == 0

    def finish(self, status: int) -> RunResult:
        """Take what was found in the output and in the logs."""
        from tpuwatch.exec.run_result import RunResult

        found, trouble = self._found()
        lost = sum(buffer.lost for buffer in self._buffers.values())
        if found is None:
            print_message(
                f"the rules did not see all of the output: {trouble}; `tpuwatch diagnose FILE` reads what was kept."
            )
        elif lost:
            print_message(
                f"{lost} bytes of the output had no room for the rules to read them; nothing is known of these."
            )
        elif status and found.unread_bytes:
            print_message(
                f"the rules read the end of the output; there was no time for {format_size(found.unread_bytes)} "
                "before it; `tpuwatch diagnose FILE` reads what was kept."
            )
        code = shell_status(status)
        kill = oom.kill_between(self._oom_counters, oom.read_counters(self._root)) if code == _KILLED else None
        return RunResult(self._pid, self._started, self._ended, code, kill, found, os.WIFSIGNALED(status))

    def _found(self) -> tuple[FoundDocument | None, str]:
        """What the watcher found; None, and why, if that is not known."""
        from tpuwatch.core import DocumentError, decode
        from tpuwatch.exec.found import FoundDocument

        answer = self._watcher.finish(self._stop_requested)
        if answer is None or "error" in answer:
            return None, self._watcher.trouble if answer is None else str(answer["error"])
        try:
            return decode(FoundDocument, answer), ""
        except DocumentError as error:
            return None, str(error)

    def _text(self, number: int, stream: Stream, counters: WatcherCounters, prepared: PreparedRun) -> Text | None:
        """What of a stream the watcher reads: the file that the command writes, or the copy of what we pass on."""
        name = _NAMES[stream.sink]
        if stream.file is not None:
            return Text(name, stream.file, stream.start, copy=False)
        try:
            file, most = open_file(prepared.environ)
        except OSError:
            return None
        self._buffers[number] = OutputBuffer(file, lambda: counters.read_offset(number), file_bytes=most)
        return Text(name, file, 0, copy=True)

    def _copier(self, number: int, stream: Stream) -> Copier | None:
        if stream.source is None:
            return None
        buffer = self._buffers.get(number)
        return Copier(stream.source, stream.sink, None if buffer is None else buffer.add)

    def _start_copiers(self) -> None:
        """The command waits for them. Where there can be no further thread, those who only look on make room."""
        for copier in self._running:
            while not copier.start():
                self._sentinel.end()
                self._watcher.make_room()
                time.sleep(_LOOK_SECONDS)

    def _flush(self, seconds: float) -> None:
        for copier in self._running:
            copier.flush(seconds)

    def _drop_unread_output(self) -> None:
        """If the watcher has ended, nothing is kept for it."""
        if self._watcher.has_ended():
            for buffer in self._buffers.values():
                buffer.drop()

    def _leave_behind(self) -> None:
        """Where processes outlive the command and hold its output, one of ours stays and passes on what they write."""
        held = [copier for copier in self._running if copier.state is StreamState.HELD and copier.ended(0)]
        if not held or not _fork("what its children still write is not passed on"):
            return
        try:
            self._watcher.detach()
            foreground.release()
            copy_rest(held)
        finally:
            os._exit(0)


def _continue_in_background() -> bool:
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
    """Whether this is the new process. Where there can be none, `otherwise` is printed as the consequence."""
    try:
        return os.fork() == 0
    except OSError as error:
        print_message(f"{otherwise}: {error.strerror}.")
        return False


def copy_rest(copiers: Sequence[Copier]) -> None:
    """Copy until no writer is left, or a signal ends this."""
    threads = [threading.Thread(target=copier.copy_on) for copier in copiers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class _StopRequest:
    """Whether a signal has requested our end after the command ended; once requested, it stays so."""

    def __init__(self) -> None:
        self._asked = False

    def __call__(self) -> bool:
        self._asked = self._asked or foreground.asked_to_end()
        return self._asked
