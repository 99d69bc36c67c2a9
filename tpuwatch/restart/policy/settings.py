"""What the policy goes by: the keys of [restart] that it needs, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tpuwatch.model import SWITCHED

if TYPE_CHECKING:
    from tpuwatch.config import Config
    from tpuwatch.model import Action

_NOT_OF_RESTART: Final = ("act", "allowed", "boot_grace_seconds", "signal_seconds")


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """What is allowed, and how often. Times are seconds, shares percent. The meaning of each is in [restart]."""

    act: bool = False  # False: observe
    allowed: frozenset[Action] = frozenset()  # what is switched on
    confirm_seconds: float = 120.0
    confirm_polls: int = 3
    startup_seconds: float = 300.0
    boot_grace_seconds: float = 300.0  # of [health]
    signal_seconds: float = 600.0  # the longer of the runtime's two graces: idle_seconds, compile_grace_seconds
    node_max: int = 3
    node_window_seconds: float = 86_400.0
    fleet_max: int = 10
    fleet_percent: float = 10.0
    fleet_window_seconds: float = 3600.0
    backoff_seconds: float = 600.0
    max_backoff_seconds: float = 21_600.0
    cooldown_seconds: float = 1800.0
    same_cause_seconds: float = 21_600.0
    breaker_failures: int = 3
    breaker_window_restarts: int = 10
    breaker_window_seconds: float = 86_400.0
    storm_nodes: int = 3
    storm_percent: float = 10.0

    @classmethod
    def of(cls, config: Config) -> PolicySettings:
        """The settings that [restart] gives, and those of [health] and [logs] about signals."""
        restart = config.restart
        same = [name for name in cls.__dataclass_fields__ if name not in _NOT_OF_RESTART]
        return cls(
            act=restart.mode == "act",
            allowed=frozenset(action for action in SWITCHED if getattr(restart, action.value)),
            boot_grace_seconds=config.health.boot_grace_seconds,
            signal_seconds=max(config.health.idle_seconds, config.logs.compile_grace_seconds),
            **{name: getattr(restart, name) for name in same},
        )
