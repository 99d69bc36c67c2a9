"""The ledger and the limits that a configuration asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.errors import ConfigError
from tpuwatch.restart.machine.sights import Limits

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tpuwatch.clock import Clock
    from tpuwatch.config.restart import Restart
    from tpuwatch.config.schema import Config
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

    `wait` waits so many seconds, or until somebody wants an end, and says whether somebody does. `counted` is told the
    method and the code of each request to a service. Raises ConfigError if [ledger] does not say which bucket.
    """
    if config.ledger.kind == "gcs":
        from tpuwatch.restart.ledger.gcs import GcsLedger

        if not config.ledger.bucket:
            raise ConfigError('ledger.bucket is not set, and ledger.kind is "gcs": give the name of the bucket')
        return GcsLedger(config.ledger, clock, wait=wait, counted=counted)
    from tpuwatch.restart.ledger.sqlite import SqliteLedger

    return SqliteLedger(directory or config.ledger_dir, clock, busy_seconds=config.ledger.timeout_seconds)


def limits(restart: Restart) -> Limits:
    """How long what may take, by [restart]."""
    return Limits(
        stop_seconds=restart.stop_seconds,
        start_seconds=restart.start_seconds,
        settle_seconds=restart.settle_seconds,
        verify_seconds=restart.verify_seconds,
        wait_seconds=restart.wait_seconds,
        poll_seconds=restart.poll_seconds,
        capacity_tries=restart.capacity_tries,
    )
