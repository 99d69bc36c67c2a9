"""Virtual time: what is due happens in its order, and a day takes as long as it takes to reckon.

Things that happen at once are callables on the agenda. Things that wait in between are tasks: real threads, of which
one runs at a time, so that code which waits by a callback, as drivers of restarts do, runs as it is. The same seed
gives the same story.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from typing import TYPE_CHECKING, Final

from tpuwatch.core.clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable

LEAST_SECONDS: Final = 0.001  # that a wait takes: wall time of this size has steps of a quarter of a microsecond


class Killed(BaseException):
    """What ends a task whose process was killed. Not to be caught by what it runs."""


class Agenda:
    """What is to happen, and the clock that it moves."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.tasks: set[Task] = set()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    @property
    def now(self) -> float:
        """Wall time; the monotonic one runs beside it."""
        return self.clock.wall

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        """Have it done so many seconds from now."""
        heapq.heappush(self._due, (self.now + max(0.0, seconds), next(self._order), do))

    def run(self, until: float) -> None:
        """Let everything happen that is due by then."""
        while self._due and self._due[0][0] <= until:
            due, _, do = heapq.heappop(self._due)
            self.clock.advance(due - self.now)
            do()
        self.clock.advance(max(0.0, until - self.now))

    def spawn(self, work: Callable[[Task], None]) -> Task:
        """Begin a task, now. An error in it is raised out of `run`."""
        task = Task(self, work)
        self.tasks.add(task)
        self.after(0.0, task.go_on)
        return task

    def close(self) -> None:
        """End all tasks."""
        for task in list(self.tasks):
            task.kill()


class Task:
    """One thing that waits in between."""

    def __init__(self, agenda: Agenda, work: Callable[[Task], None]) -> None:
        self._agenda = agenda
        self._work = work
        self._turn, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._killed = False
        self._error: BaseException | None = None
        self.alive = True
        self._thread = threading.Thread(target=self._main, daemon=True)
        self._thread.start()

    def pause(self, seconds: float) -> None:
        """Called by the task itself: let so many seconds pass. Raises Killed."""
        self.check()
        self._agenda.after(max(seconds, LEAST_SECONDS), self.go_on)
        self._back.release()
        self._turn.acquire()
        self.check()

    def check(self) -> None:
        """Raise Killed if it was: from then on nothing of its is carried out."""
        if self._killed:
            raise Killed

    def kill(self) -> None:
        """End it, wherever it stands."""
        self._killed = True
        self.go_on()

    def go_on(self) -> None:
        """Run it until it waits or ends."""
        if not self.alive:
            return
        self._turn.release()
        self._back.acquire()
        if not self.alive:
            self._thread.join()
            self._agenda.tasks.discard(self)
        if self._error is not None:
            raise self._error

    def _main(self) -> None:
        self._turn.acquire()
        try:
            if not self._killed:
                self._work(self)
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 (it is raised where the agenda runs)
            self._error = error
        finally:
            self.alive = False
            self._back.release()
