"""Launches: programs that behave as libtpu and a job do by what the TPU_* variables say.

Each runs as itself: its log files, its output, its pid and its end are as real as those of a job. libtpu's part of the
log is tpuwatch.sim.host.logwriter's, what the variables do is read by sim.host.libtpu_settings.

`tpuwatch sim launch` is one of any needs. Run as a program (`python -m tpuwatch.sim.host.launch NAME --logs DIRECTORY`)
this is one of LAUNCHES.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from tpuwatch.core import SystemClock, parse_size
from tpuwatch.model import SIZE
from tpuwatch.sim.host.filesystem import on_machine
from tpuwatch.sim.host.glog import LETTERS, GlogFiles, prefix
from tpuwatch.sim.host.job import SCRIPT, JobOutput
from tpuwatch.sim.host.libtpu_settings import LOG_DIR, LibtpuSettings, read
from tpuwatch.sim.host.logwriter import SimulatedProcess, premapped_message
from tpuwatch.sim.host.report import SimulatedAllocation

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import FrameType

LAUNCH_OPTIONS: Final = frozenset({"need", "transfer", "init_base", "init_per_gib", "steps", "logs", "pace", "seed"})
_STEP_SECONDS: Final = 0.4
_PARTS: Final = 8  # transfers that make up the need, when their size is not given
_INTERRUPTED: Final = f"""\
Traceback (most recent call last):
  File "{SCRIPT}", line 184, in <module>
    main(parse_arguments())
KeyboardInterrupt
"""
_NOISE: Final = 0.05  # relative spread of the initialisation, with a seed
# The first has 14 columns: the chip keeps the last dimension in tiles of 128, so nine tenths of it are padding.
PADDED: Final = (
    SimulatedAllocation(16 << 30, "f32[33554432,14]"),
    SimulatedAllocation(4 << 30, "bf16[16,32,2048,2048]"),
)


@dataclass(frozen=True, slots=True)
class LaunchScript:
    """What the job does. Sizes are bytes, durations seconds of its own time."""

    need: int = 0  # of the premapped region, at once
    transfer: int | None = None  # size of the transfers that it is made of; None: an eighth of it
    init_base: float = 2.0  # how long an initialisation takes without a region
    init_per_gib: float = 0.5  # and more for each GiB of it
    steps: int = 8
    logs: Path = LOG_DIR  # where log files go when TPU_LOG_DIR says nothing
    pace: float = 1.0  # seconds of real time for each; 0 waits for nothing
    seed: int | None = None  # of the noise in the time of initialisation; None: no noise
    busy: bool = False  # another process holds the chips
    fits_hbm: bool = True  # else the compiler finds that the program does not fit, mostly because of padding

    def init_seconds(self, region: int) -> float:
        """How long an initialisation takes that pins so many bytes."""
        rng = None if self.seed is None else random.Random(self.seed)  # noqa: S311 - noise
        noise = max(0.5, rng.gauss(1.0, _NOISE)) if rng else 1.0
        return (self.init_base + self.init_per_gib * region / (1 << 30)) * noise

    def short_of(self, settings: LibtpuSettings) -> tuple[int, int] | None:
        """The transfer that the region has no room for, and what is free then; None when all have room.

        Transfers above the threshold do not go through the region.
        """
        region = settings.premapped_bytes
        transfer = max(1, -(-self.need // _PARTS) if self.transfer is None else self.transfer)
        if region is None or transfer > settings.threshold or self.need <= region:
            return None
        in_use = region // transfer * transfer
        return min(transfer, self.need - in_use), region - in_use


@dataclass(frozen=True, slots=True)
class NamedLaunch:
    """A launch by its name; `phase` is what the TPU's runtime shows meanwhile, empty for nothing."""

    script: LaunchScript
    phase: str = ""  # of tpuwatch.sim.cloud.nodes.WorkloadPhase
    environment: Mapping[str, str] = field(default_factory=dict)


LAUNCHES: Final = {
    "healthy": NamedLaunch(LaunchScript(init_base=0.4), "training"),
    "premapped": NamedLaunch(
        LaunchScript(need=640 << 20, transfer=192 << 20, init_base=1.5), "training", {SIZE: str(256 << 20)}
    ),
    "hbm-oom": NamedLaunch(LaunchScript(init_base=0.1, fits_hbm=False), "compiling"),
    # Pinning 64 GiB takes far longer than the 15 s that a launch may take.
    "slow-init": NamedLaunch(LaunchScript(init_base=16.5, steps=3), "starting", {SIZE: str(64 << 30)}),
    "busy": NamedLaunch(LaunchScript(busy=True)),
}
_UNBUFFERED: Final = {"LIBTPU_INIT_ARGS": "--logbuflevel=-1"}  # whoever watches sees each line at once


class Terminated(BaseException):
    """SIGTERM has come."""


class Libtpu(SimulatedProcess):
    """libtpu in this process, with the settings of its environment."""

    def __init__(self, settings: LibtpuSettings, clock: SystemClock) -> None:
        files = GlogFiles(
            settings.log_dir or Path(os.devnull),
            clock,
            rotate_at=settings.rotate_at,
            minimum=settings.minimum or "F",
            buffered=settings.buffered,
        )
        super().__init__(files)
        self.settings = settings

    def record(self, severity: str, text: str, source: str = "tpu_hal.cc:471", *, thread: int | None = None) -> None:
        """One record, to the files and to stderr as the levels say."""
        settings = self.settings
        if settings.minimum is None or not _reaches(severity, settings.minimum):
            return
        line = prefix(severity, self.clock.time(), self.pid if thread is None else thread, source) + text
        if settings.stderr_level is not None and _reaches(severity, settings.stderr_level):
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()
        if settings.log_dir is not None:
            self.files.write(severity, line)

    def terminated(self) -> None:
        """What its handler leaves of SIGTERM: an ordinary end looks like a crash."""
        message = (
            f"*** SIGTERM received by PID {self.pid} (TID {self.pid}) on cpu 1, si_code=0, from PID 1; stack trace: ***"
        )
        frame = "PC: @     0x7f0000000267  (unknown)  kill\n    @     0x7f0000000050  (unknown)  (unknown)"
        sys.stderr.write(f"{message}\n{frame}\n")
        self.record("E", message, "process_state.cc:1342")
        self.record("E", frame, "process_state.cc:1348")
        self.record("W", "--- CPU registers: ---\n   r8=6e  r9=7ffd00000340 r10=7f0000000580", "process_state.cc:1365")
        self.record("E", "RAW: Raising signal 15 with default behavior", "process_state.cc:796")


def _reaches(severity: str, level: str) -> bool:
    return LETTERS.index(severity) >= LETTERS.index(level)


def run_launch(script: LaunchScript, environ: Mapping[str, str]) -> int:
    """The job's exit status; a signal that ends it ends this process by the same signal."""
    settings = read(environ, script.logs)
    for complaint in settings.complaints:
        print(complaint, file=sys.stderr)  # noqa: T201 - as libtpu does
    if settings.unknown_flag:
        print(f"ERROR: Unknown command line flag '{settings.unknown_flag}'", file=sys.stderr)  # noqa: T201
        return 1
    before = signal.signal(signal.SIGTERM, _on_sigterm)
    libtpu = Libtpu(settings, SystemClock())
    try:
        with on_machine(settings.log_dir):
            return _play(script, settings, libtpu)
    except Terminated:
        libtpu.terminated()
        _end_by(signal.SIGTERM, libtpu)
    except KeyboardInterrupt:
        sys.stderr.write(_INTERRUPTED)
        _end_by(signal.SIGINT, libtpu)
    finally:
        libtpu.close()
        signal.signal(signal.SIGTERM, before)


def _play(script: LaunchScript, settings: LibtpuSettings, libtpu: Libtpu) -> int:
    output, errors = JobOutput(sys.stdout), JobOutput(sys.stderr)
    if settings.partitions <= 0 or settings.partitions & (settings.partitions - 1):
        libtpu.loaded(settings.flags)
        libtpu.record(
            "F",
            "Check failed: absl::has_single_bit(options_copy.num_premapped_partitions) TPU premapped buffer partition "
            f"count must be a power of 2, but the configured value was {settings.partitions}",
            "singleton_tpu_states_manager.cc:82",
        )
        return 1
    region = settings.premapped_bytes
    libtpu.banner(
        premapped_bytes=region,
        threshold_bytes=settings.threshold_bytes,
        partitions=settings.partitions,
        flags=settings.flags,
    )
    if script.busy:
        libtpu.busy()
        errors.traceback(
            "FAILED_PRECONDITION: TPU initialization failed: open(/dev/vfio/0): 16: Device or resource busy; "
            "Couldn't open iommu group /dev/vfio/0"
        )
        return 1
    libtpu.init_start(premapped_bytes=region)
    seconds = script.init_seconds(region or 0)
    _pause(seconds, script)
    libtpu.init_ok(seconds)
    if not script.fits_hbm:
        libtpu.hbm_oom(PADDED)
        errors.hbm_oom(PADDED)
        return 1
    libtpu.compile_ok()
    for step in range(1, script.steps + 1):
        _pause(_STEP_SECONDS, script)
        short = script.short_of(settings) if step == (script.steps + 1) // 2 else None
        if short is not None:
            libtpu.premapped_exhausted(*short)
            errors.traceback(f"RESOURCE_EXHAUSTED: {premapped_message(*short)}")
            return 1
        output.step(step * 100, 2.5 / (1 + step / 4), 0.004)
    return 0


def _pause(seconds: float, script: LaunchScript) -> None:
    if script.pace:
        time.sleep(seconds * script.pace)


def _on_sigterm(_number: int, _frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough
    raise Terminated


def _end_by(number: signal.Signals, libtpu: Libtpu) -> NoReturn:
    """End this process by the signal, with the files as a process leaves them that ends in order."""
    libtpu.close()
    with suppress(OSError):
        sys.stdout.flush()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    raise SystemExit(128 + number)  # the signal is blocked


def add_launch_arguments(group: Any) -> None:
    """The options, to a parser or to a group of one; None where one is not given."""
    group.add_argument("--need", type=_size, metavar="SIZE", help="of the premapped buffer, at once (default: 0)")
    group.add_argument("--transfer", type=_size, metavar="SIZE", help="of each transfer (default: an eighth of it)")
    group.add_argument("--init-base", type=_seconds, metavar="S", help="seconds to initialise at least (default: 2)")
    group.add_argument("--init-per-gib", type=_seconds, metavar="S", help="and for each GiB of buffer (default: 0.5)")
    group.add_argument("--steps", type=_count, metavar="N", help="of training; half way the need arises (default: 8)")
    group.add_argument("--logs", type=Path, metavar="DIR", help=f"where TPU_LOG_DIR is not set (default: {LOG_DIR})")
    group.add_argument("--pace", type=_seconds, metavar="F", help="stretches what it waits for (default: 1; 0: none)")
    group.add_argument("--seed", type=_count, metavar="N", help="of the noise in its times (default: no noise)")


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _seconds(text: str) -> float:
    return _at_most(1_000_000, float(text), text)


def _count(text: str) -> int:
    return int(_at_most(1_000_000_000, int(text), text))


def _at_most(limit: int, value: float, text: str) -> float:
    if not 0 <= value <= limit:
        raise argparse.ArgumentTypeError(f"{text} cannot be; give a number from 0 to {limit}")
    return value


def main() -> int:
    """Play one launch in this process."""
    parser = argparse.ArgumentParser(prog="python -m tpuwatch.sim.host.launch", description=main.__doc__)
    parser.add_argument("launch", choices=LAUNCHES)
    parser.add_argument("--logs", type=Path, required=True, metavar="DIRECTORY", help="where libtpu's log files go")
    parser.add_argument("--pace", type=float, default=1.0, help="1 in real time, 0 without any waiting (default: 1)")
    arguments = parser.parse_args()
    launch = LAUNCHES[arguments.launch]
    script = replace(launch.script, logs=arguments.logs, pace=arguments.pace)
    return run_launch(script, {**_UNBUFFERED, **launch.environment, **os.environ})


if __name__ == "__main__":
    sys.exit(main())
