"""Clocks that differ: times in the future among what the witnesses tell."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tpuwatch.health.evidence import Witness

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpuwatch.health.evidence import Evidence
    from tpuwatch.health.facts import Facts


def ahead(facts: Facts) -> Iterator[tuple[Witness, float]]:
    """Witnesses that give times further in the future than clocks may differ, and by how many seconds at most."""
    for witness, times in _times(facts.evidence):
        seconds = max((when - facts.now for when in times if when is not None and math.isfinite(when)), default=0.0)
        if seconds > facts.limits.skew_seconds:
            yield witness, seconds


def _times(evidence: Evidence) -> Iterator[tuple[Witness, list[float | None]]]:
    """All times that lie in the past when the clocks agree."""
    node, seen = evidence.cloud.value, evidence.monitoring.value
    of_node = [node.changed, node.created, *(symptom.at for symptom in node.symptoms)] if node else []
    yield Witness.CLOUD, [evidence.cloud.at, *of_node]
    yield Witness.MONITORING, [evidence.monitoring.at, *([seen.idle_at, seen.infra_at] if seen else [])]
    agent = evidence.agent.value
    yield Witness.AGENT, [evidence.agent.at, *([agent.answered, agent.silent_since] if agent else [])]
    if not evidence.own:
        return
    runtime, host, logs = evidence.runtime.value, evidence.host.value, evidence.logs.value
    yield Witness.RUNTIME, [evidence.runtime.at, *(port.since for port in (runtime.ports if runtime else ()))]
    yield Witness.METADATA, [evidence.notices.at]
    if host:
        begun = (holder.started for holder in host.holders)
        yield Witness.HOST, [evidence.host.at, host.booted, host.last_oom_kill, *begun]
    if logs:
        spoken = (time for one in logs.launches for time in (one.started, one.last_heard))
        yield Witness.LOGS, [evidence.logs.at, *spoken, *(one.when for one in logs.events if not one.history)]
