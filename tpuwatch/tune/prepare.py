"""What the next launch of a workload gets, put together at its start: the plan that stands, as it fits here and now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpuwatch.errors import TuneError
from tpuwatch.tune import visibility
from tpuwatch.tune.config import read_config
from tpuwatch.tune.plan import Given, environment, fresh_plan, plan_directory, read_plan, renewed, stamp, workload_name

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tpuwatch.tune.model import Plan


@dataclass(frozen=True, slots=True)
class Prepared:
    """All that a start needs to know."""

    directory: Path  # the tune directory, which need not exist
    plan: Plan
    given: Given
    warnings: tuple[str, ...]  # sentences for the operator


def prepare(
    workload: str | None, environ: Mapping[str, str], now: float, *, config: Path | None = None, elsewhere: bool = False
) -> Prepared:
    """The next launch's environment. `now`: seconds since the epoch.

    `elsewhere`: the launch does not inherit `environ`, such as a service's. Raises ConfigError, and TuneError for a
    workload that is no name; a plan that cannot be used is a warning.
    """
    start = read_config(config, environ)
    name = workload_name(workload, environ)
    directory = plan_directory(start.tune_dir, environ)
    warnings: list[str] = []
    try:
        plan = read_plan(directory, name)
    except TuneError as error:
        plan = None
        warnings.append(f"{error}.")
    if plan is not None and plan.config != stamp(start.path):
        warnings.append("The plan was decided by another state of the configuration; the next one goes by this one.")
    places = visibility.places(str(start.log_dir), as_me=not elsewhere)
    visible = visibility.settings(places, log_mib=start.log_mib, stderr_level=start.stderr_level)
    whole = renewed(plan or fresh_plan(name, (), now, config=stamp(start.path)), visible.settings, start.pins)
    given = environment(whole, {} if elsewhere else environ)
    if not elsewhere:
        warnings += visibility.hidden({**environ, **given.set})
    return Prepared(directory, whole, given, (*warnings, *visible.warnings))
