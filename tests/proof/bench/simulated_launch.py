"""The launches of tests.proof.bench.simulated_host: what the daemon's tracker would know of each after it has ended."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from tests.proof.bench.simulated_host import LIMIT_SECONDS
from tpuwatch.core.units import parse_size
from tpuwatch.model.causes import Cause
from tpuwatch.model.launches import Launch, Outcome
from tpuwatch.model.tune import SET_VARIABLE, SIZE, THRESHOLD, WORKLOAD_VARIABLE
from tpuwatch.sim.host import report

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.proof.bench.simulated_host import World

WORKLOAD: Final = "train"
_BEGIN: Final = 1_790_000_000.0
_FIRST, _BOOT = 0.5, 0.06  # how often a launch is the first of a boot: the first that is seen, and the others
_BUSY, _METADATA, _SLOW, _STOPPED = 0.02, 0.04, 0.025, 0.02  # how often, of all launches
_KILLED_STATUS, _STOPPED_STATUS = 128 + 9, 128 + 15


class TunedHost:
    """Launches a world's workload, one after another. The same seed gives the same luck, whatever sizes are tried."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self.world = world
        self.launches: list[Launch] = []
        self._rng = rng
        self._now = _BEGIN
        self._boot = rng.getrandbits(32)

    def launch(self, size: int | None, threshold: int | None = None, *, by_operator: bool = False) -> Launch:
        """Start the job with a buffer of `size` bytes (None: left to libtpu) and see it end; kept in `launches`."""
        luck = random.Random(self._rng.getrandbits(64))
        cold = luck.random() < (_BOOT if self.launches else _FIRST)
        if self.launches and cold:
            self._boot = luck.getrandbits(32)
        machine = self.world.machine
        launch = Launch(
            pid=luck.randint(1000, 4_000_000),
            started=self._now,
            user="user",
            host="t1v-n-0",
            build="libtpu_lts_20261020_b_RC01",
            chips=machine.shape.chips,
            chip_kind=machine.shape.chip_kind,
            environment=_environment(size, threshold, by_operator=by_operator),
            workload=WORKLOAD,
            boot_id=f"{self._boot:08x}-0000-4000-8000-000000000000",
            id=len(self.launches) + 1,
        )
        region = self.world.size(size)
        if region:
            launch.premapped_bytes = region
            launch.premapped_threshold_bytes = region if threshold is None else threshold
            launch.premapped_partitions = 1
        self._live(launch, size, threshold, luck, cold=cold)
        launch.last_heard = launch.ended
        self._now = (launch.ended or self._now) + luck.uniform(10.0, 3600.0)
        self.launches.append(launch)
        return launch

    def _live(
        self, launch: Launch, size: int | None, threshold: int | None, luck: random.Random, *, cold: bool
    ) -> None:
        """From its start to its end."""
        region, free = self.world.size(size), self.world.machine.free_bytes
        seconds = self._init_seconds(launch, region, luck, cold=cold)
        if luck.random() < _BUSY:  # somebody else has the chips
            return _fail(launch, Cause.TPU_IN_USE, 0.5)
        if region > free:
            return _fail(launch, Cause.INIT_FAILED, seconds) if luck.random() < 0.5 else _kill(launch, seconds)
        launch.init_seconds = round(seconds, 6)
        launch.outcome = Outcome.OK if seconds <= LIMIT_SECONDS else Outcome.SLOW
        if launch.outcome is Outcome.SLOW:
            launch.faults[Cause.SLOW_INIT.value] = seconds
        if luck.random() < _STOPPED:  # by a person, before it has transferred much
            return _stop(launch, seconds + luck.uniform(5.0, 60.0))
        return self._work(launch, size, threshold, luck, seconds)

    def _work(self, launch: Launch, size: int | None, threshold: int | None, luck: random.Random, at: float) -> None:
        """The job's bursts; with the first of them its own memory fills up."""
        region = self.world.size(size)
        for number, burst in enumerate(self.world.through(size, threshold)):
            at += luck.uniform(5.0, 600.0)
            if self._fails(launch, region, burst, luck, at):
                return
            if number == 0 and region + self.world.workload.job_bytes > self.world.machine.free_bytes:
                _kill(launch, at + 1.0)
                return
        launch.ended, launch.exit_status = launch.started + at + luck.uniform(600.0, 6000.0), 0

    def _init_seconds(self, launch: Launch, region: int, luck: random.Random, *, cold: bool) -> float:
        """How long it takes this time, with the marks of what made it longer."""
        machine = self.world.machine
        seconds = machine.seconds(region) * max(0.5, luck.gauss(1.0, machine.noise))
        if cold:  # shown by the boot alone: files come from the disk
            seconds += machine.cold_seconds
        if luck.random() < _METADATA:  # the metadata server does not answer for a while
            launch.faults[Cause.METADATA_UNREACHABLE.value] = 1.0
            seconds += luck.uniform(10.0, 60.0)
        if luck.random() < _SLOW:  # for whatever reason: nothing shows it
            seconds += luck.uniform(5.0, 30.0)
        return seconds

    def _fails(self, launch: Launch, region: int, burst: Sequence[int], luck: random.Random, at: float) -> bool:
        """Whether a transfer of the burst finds no room; the first one that does not ends the job, and is reported."""
        in_use = 0
        for asked in luck.sample(burst, len(burst)):
            if self.world.workload.room(in_use + asked) > region:
                _report_premapped(launch, region, asked, region - in_use)
                launch.faults[Cause.PREMAPPED_EXHAUSTED.value] = at
                launch.ended, launch.exit_status = launch.started + at, 1
                return True
            in_use += asked
        return False


def _environment(size: int | None, threshold: int | None, *, by_operator: bool) -> dict[str, str]:
    given = {name: str(value) for name, value in ((SIZE, size), (THRESHOLD, threshold)) if value is not None}
    marks = {} if by_operator else {SET_VARIABLE: ",".join(given), WORKLOAD_VARIABLE: WORKLOAD}
    return {**given, **marks}


def _report_premapped(launch: Launch, region: int, asked: int, free: int) -> None:
    """What a failed transfer shows: sizes as the log words them, in two decimals."""
    asked, free = parse_size(report.short(asked)), parse_size(report.short(free))
    launch.premapped_failures = 1
    launch.premapped_asked_bytes = asked
    launch.premapped_need_bytes = region + asked - (free if asked > free else 0)


def _fail(launch: Launch, cause: Cause, seconds: float) -> None:
    launch.outcome, launch.cause = Outcome.FAILED, cause
    launch.faults[cause.value] = seconds
    launch.ended, launch.exit_status = launch.started + seconds, 1


def _stop(launch: Launch, seconds: float) -> None:
    launch.faults[Cause.INTERRUPTED.value] = seconds
    launch.ended, launch.exit_status = launch.started + seconds, _STOPPED_STATUS


def _kill(launch: Launch, seconds: float) -> None:
    """The kernel takes the job to have memory again."""
    if launch.outcome is Outcome.STARTING:
        launch.outcome = Outcome.KILLED
    launch.faults[Cause.HOST_OOM.value] = seconds
    launch.ended, launch.exit_status = launch.started + seconds, _KILLED_STATUS
