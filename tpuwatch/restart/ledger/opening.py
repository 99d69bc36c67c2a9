"""The ledger and the limits that a configuration asks for."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from tpuwatch.core import ConfigError
from tpuwatch.restart.workflow.types import PhaseLimits

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tpuwatch.config import Config, RestartConfig
    from tpuwatch.core import Clock
    from tpuwatch.restart.ledger.base import Ledger


def open_ledger(
    config: Config,
    clock: Clock,
    *,
    directory: Path | None = None,
    wait: Callable[[float], bool] | None = None,
    counted: Callable[[str, str], None] = lambda *_: None,
) -> Ledger:
    """The ledger that [ledger] asks for; one that is a file may be had in another directory. It makes no file yet.

    `wait` waits so many seconds, or until a stop is requested, and returns whether it is. `counted` is called with the
    method and the code of each request to a service. Raises ConfigError if [ledger] does not name the bucket.
    """
    if config.ledger.kind == "gcs":
        from tpuwatch.restart.ledger.gcs import GcsLedger

        if not config.ledger.bucket:
            raise ConfigError('ledger.bucket is not set, and ledger.kind is "gcs": give the name of the bucket')
        return GcsLedger(config.ledger, clock, wait=wait, counted=counted)
    from tpuwatch.restart.ledger.sqlite import SqliteLedger

    return SqliteLedger(directory or config.ledger_dir, clock, busy_seconds=config.ledger.timeout_seconds)


def phase_limits(restart: RestartConfig) -> PhaseLimits:
    """How long what may take, by [restart]."""
    return PhaseLimits(
        **{one.name: getattr(restart, one.name) for one in fields(PhaseLimits) if hasattr(restart, one.name)}
    )
