"""Keys and values that have been renamed, so that a message names the new one instead of guessing."""

from __future__ import annotations

from typing import Any, Final

RENAMED_KEYS: Final = {
    "agents": "peers",
    "cloud.alpha": "cloud.use_v2alpha1",
    "restart.breaker_last": "restart.breaker_window_restarts",
    "restart.capacity_tries": "restart.stockout_alert_after",
    "restart.longest_backoff_seconds": "restart.max_backoff_seconds",
    "tune.least_mib": "tune.min_mib",
    "tune.most_mib": "tune.max_mib",
    "tune.pins": "tune.overrides",
}
RENAMED_VALUES: Final = {("tune.mode", "apply"): "act"}


def new_key(name: str) -> str | None:
    """The present name of a table or key that was called `name` ("tune.least_mib"); None if there was none."""
    return RENAMED_KEYS.get(name)


def new_value(name: str, given: Any) -> str | None:
    """The present form of the value of the key `name`; None if it was not renamed."""
    return RENAMED_VALUES.get((name, given)) if isinstance(given, str) else None
