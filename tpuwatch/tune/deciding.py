"""From launches, host and configuration to the plan of a workload's next launch. Pure."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from tpuwatch.tune import visibility
from tpuwatch.tune.model import DEFAULT_WORKLOAD, SIZE, THRESHOLD, Bounds, Plan, Setting, is_workload
from tpuwatch.tune.plan import renewed, stamp
from tpuwatch.tune.policy import decide

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tpuwatch.config import Config
    from tpuwatch.model import Launch
    from tpuwatch.tune.model import Decision, Host
    from tpuwatch.tune.visibility import LogFacts

_AHEAD_SECONDS: Final = 300.0  # by which a launch may be ahead of our clock
_NONE: Final[Mapping[str, float]] = MappingProxyType({})


def bounds_of(config: Config) -> Bounds:
    """What the configuration allows."""
    tune = config.tune
    return Bounds(
        least_bytes=tune.least_mib << 20,
        most_bytes=tune.most_mib << 20,
        memory_share=tune.memory_percent / 100,
        init_seconds=config.logs.slow_init_seconds,
        headroom=tune.headroom_percent / 100,
        window=tune.window_launches,
        power_of_two=tune.pathways,
        pins=dict(tune.pins),
    )


def workloads(
    launches: Iterable[Launch], resets: Mapping[str, float] = _NONE, now: float = math.inf
) -> dict[str, list[Launch]]:
    """The launches of each workload, the oldest first; those that nobody named are of DEFAULT_WORKLOAD.

    The workload that was launched last comes last. What was launched before the reset of its workload
    (tpuwatch.tune.resets) is left out, and what is of the future: a clock that was ahead, and was set right since, is
    to have no last word for ever.
    """
    found: dict[str, list[Launch]] = {}
    for launch in sorted(launches, key=lambda one: one.started):
        name = name_of(launch)
        if resets.get(name, 0.0) <= launch.started <= now + _AHEAD_SECONDS:
            found.setdefault(name, []).append(launch)
    return dict(sorted(found.items(), key=lambda item: item[1][-1].started))


def name_of(launch: Launch) -> str:
    """The workload that a launch is of."""
    return launch.workload if is_workload(launch.workload) else DEFAULT_WORKLOAD


def make_plan(
    config: Config,
    launches: Sequence[Launch],
    host: Host,
    workload: str,
    now: float,
    facts: Sequence[LogFacts] = (),
) -> Plan:
    """All that is decided for a workload's next launch.

    `launches` are its own, the oldest first. `facts` are the directories that libtpu's logs may go to, in the order in
    which they are wanted (tpuwatch.tune.visibility.places); without them nothing is said of logs.
    """
    tune, bounds = config.tune, bounds_of(config)
    decision = decide(launches, host, bounds)
    visible = visibility.settings(facts, log_mib=tune.log_mib, stderr_level=tune.stderr_level) if facts else None
    plan = Plan(workload, now, _premapped(decision), decision, stamp(config.source), host.generation)
    return renewed(plan, visible.settings if visible is not None else (), dict(sorted(bounds.pins.items())))


def _premapped(decision: Decision) -> tuple[Setting, ...]:
    why = decision.reasons[0] if decision.reasons else ""
    sizes = {SIZE: decision.size_bytes, THRESHOLD: decision.threshold_bytes}
    return tuple(Setting(name, str(value), why) for name, value in sizes.items() if value is not None)
