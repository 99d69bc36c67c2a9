"""What an action on the machine works with: its record, its system, and its lease."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from tpuwatch.model import Phase

if TYPE_CHECKING:
    from tpuwatch.config import RestartConfig


if TYPE_CHECKING:
    from tpuwatch.model import Holder, RestartRecord
    from tpuwatch.restart.local.system import System

# An act that was begun or broken off so long ago is not carried on: what it was decided on has gone by.
RESUME_SECONDS: Final = 600.0
AHEAD_SECONDS: Final = 120.0  # a clock may have been set back by so much meanwhile


class ActionContext(Protocol):
    """Implemented by the driver. Each write is flushed when it returns, renews the lease, and raises if it is lost."""

    system: System
    settings: LocalSettings
    at_fault: tuple[Holder, ...]  # who is to be ended or asked, as the evidence has them

    @property
    def record(self) -> RestartRecord:
        """As it is stored."""

    @property
    def began_here(self) -> bool:
        """Whether its intent was written by this very driver."""

    def time(self) -> float:
        """Now, in seconds since the epoch."""

    def monotonic(self) -> float:
        """Seconds that never jump."""

    def report(self, sentence: str) -> None:
        """Report progress."""

    def write(self, phase: Phase, sentence: str = "", **changes: object) -> None:
        """Store the record in that phase, entered now, and report the sentence."""

    def end(self, phase: Phase, note: str, **changes: object) -> None:
        """Store that it has ended."""

    def must_stop(self) -> bool:
        """Renew the lease where it is due; whether a stop is requested. Call it every few seconds."""

    def pause(self, seconds: float) -> None:
        """Wait, or until a stop is requested."""


def is_recent(ctx: ActionContext) -> bool:
    """Whether the record's phase was entered lately, and in this boot as far as that is recorded."""
    record = ctx.record
    same_boot = not record.boot_id or record.boot_id == ctx.system.boot_id()
    return same_boot and -AHEAD_SECONDS <= ctx.time() - max(record.entered, record.requested) <= RESUME_SECONDS


def cancel(ctx: ActionContext, why: str) -> None:
    """End it before anything was done."""
    ctx.end(Phase.CANCELLED, f"{why} Nothing was done.")


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """Times are seconds. The meaning of each is in [restart]."""

    checkpoint_command: tuple[str, ...] = ()
    checkpoint_seconds: float = 120.0
    checkpoint_signal: str = ""
    sigint_seconds: float = 30.0
    sigterm_seconds: float = 30.0
    sigquit_seconds: float = 10.0
    sigkill_seconds: float = 30.0
    runtime_unit: str = "tpu-runtime.service"
    runtime_command: tuple[str, ...] = ()
    runtime_seconds: float = 120.0
    settle_seconds: float = 60.0

    @classmethod
    def of(cls, restart: RestartConfig) -> LocalSettings:
        """The settings that [restart] gives."""
        return cls(**{name: getattr(restart, name) for name in cls.__dataclass_fields__})

    @property
    def signal_sequence(self) -> tuple[tuple[signal.Signals, float], ...]:
        """The signals that end a process, and the time after each, in their order."""
        stages = (
            (signal.SIGINT, self.sigint_seconds),
            (signal.SIGTERM, self.sigterm_seconds),
            (signal.SIGQUIT, self.sigquit_seconds),
            (signal.SIGKILL, self.sigkill_seconds),
        )
        return tuple((number, seconds) for number, seconds in stages if seconds > 0)
