"""How things are done on the machine: the keys of [restart] that say it, as plain data."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tpuwatch.config.restart import Restart


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
    def of(cls, restart: Restart) -> LocalSettings:
        """The settings that [restart] gives."""
        return cls(**{name: getattr(restart, name) for name in cls.__dataclass_fields__})

    @property
    def ladder(self) -> tuple[tuple[signal.Signals, float], ...]:
        """The signals that end a process, and the time after each, in their order."""
        stages = (
            (signal.SIGINT, self.sigint_seconds),
            (signal.SIGTERM, self.sigterm_seconds),
            (signal.SIGQUIT, self.sigquit_seconds),
            (signal.SIGKILL, self.sigkill_seconds),
        )
        return tuple((number, seconds) for number, seconds in stages if seconds > 0)
