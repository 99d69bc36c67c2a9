"""The answers of Google's APIs, requested once for all checks with the daemon's own clients."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tpuwatch.core import SystemClock
from tpuwatch.doctor import metadata
from tpuwatch.doctor.environment import once
from tpuwatch.model import Answer, Identity, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpuwatch.config import Config
    from tpuwatch.doctor.environment import Environment
    from tpuwatch.google import CloudClient
    from tpuwatch.model import Monitoring, QueuedResource
    from tpuwatch.signals import Watch

SECONDS: Final = 5.0  # for each call, unless the configuration gives less
# After these the other zones are not queried: the answer would be the same.
_SAME_IN_ALL_ZONES: Final = (Problem.CREDENTIALS, Problem.SCOPE, Problem.DISABLED, Problem.UNREACHABLE, Problem.TIMEOUT)


@dataclass(frozen=True, slots=True)
class ZoneNodes:
    """The names of the nodes in one zone, or why the Cloud TPU API did not list them."""

    watch: Watch
    names: frozenset[str] = frozenset()
    awaited: Mapping[str, QueuedResource] = field(default_factory=dict)  # watched nodes that do not exist yet
    problem: Problem | None = None
    detail: str = ""


def identity(environment: Environment) -> Identity:
    """The identity of this machine, from the configuration and the metadata server."""
    return _identity(environment).value or Identity()


def configuration_mismatch(environment: Environment) -> str:
    """How the configuration contradicts the metadata server about this machine, in a sentence; "" if it does not."""
    answer = _identity(environment)
    return "" if answer.problem else answer.detail


@once
def _identity(environment: Environment) -> Answer[Identity]:
    from tpuwatch.signals import IdentitySignal, kubernetes_node

    config = environment.config
    client = metadata.client(environment) if metadata.failure(environment) is None else None
    rng = random.Random()  # noqa: S311 (it spreads requests, of which there is one)
    return IdentitySignal(
        config.cloud,
        client,
        config.runtime.ports,
        clock=environment.clock,
        rng=rng,
        kubernetes=kubernetes_node(environment.environ),
    ).ask()


@once
def zones(environment: Environment) -> list[ZoneNodes]:
    """The nodes of each zone with something to watch, and of the configured zone."""
    from tpuwatch.google import CloudClient

    client = CloudClient(
        _with_short_deadline(environment.config).cloud, clock=SystemClock(), on_call=lambda _method, _code: None
    )
    found: list[ZoneNodes] = []
    try:
        for watch in _watches(environment):
            found.append(_zone(client, watch))
            if found[-1].problem in _SAME_IN_ALL_ZONES:
                break
    finally:
        client.close()
    return found


def _zone(client: CloudClient, watch: Watch) -> ZoneNodes:
    from tpuwatch.google import ApiError

    try:
        pages = client.list_nodes(watch.project, watch.zone)
        names = frozenset(node.name.rpartition("/")[2] for page in pages for node in page.nodes)
        return ZoneNodes(watch, names, _awaited(client, watch, names))
    except ApiError as error:
        return ZoneNodes(watch, problem=error.fault.problem, detail=str(error))


def _awaited(client: CloudClient, watch: Watch, names: frozenset[str]) -> dict[str, QueuedResource]:
    """The watched nodes that queued resources still make, asked for where a node is missing. Raises ApiError."""
    from tpuwatch.signals import zone_queued_resources

    if watch.names <= names and not (watch.patterns and not any(map(watch.has, names))):
        return {}
    waiting = [one for one in zone_queued_resources(client, watch) if one.waits]
    return {node: one for one in waiting for node in one.nodes if watch.has(node) and node not in names}


def _watches(environment: Environment) -> list[Watch]:
    """What is watched, if its project and zone are known."""
    from tpuwatch.signals import Watch, watches

    own = identity(environment)
    placed = [watch for watch in watches(environment.config.cloud.nodes, own) if watch.placed]
    if not placed and own.project.value and own.zone.value:
        return [Watch(own.project.value, own.zone.value, frozenset(), ())]
    return placed


@once
def monitoring(environment: Environment) -> Answer[Monitoring]:
    """Whether Cloud Monitoring can be read."""
    from tpuwatch.signals import MonitoringSignal

    config = _with_short_deadline(environment.config)
    signal = MonitoringSignal(
        config,
        lambda: identity(environment),
        clock=environment.clock,
        rng=random.Random(),  # noqa: S311 (it spreads requests, of which there is one)
        on_call=lambda _method, _code: None,
    )
    try:
        return signal.ask()
    finally:
        signal.close()


def _with_short_deadline(config: Config) -> Config:
    """The configuration with a deadline for a person who waits."""
    seconds = min(SECONDS, config.cloud.timeout_seconds)
    return config.model_copy(update={"cloud": config.cloud.model_copy(update={"timeout_seconds": seconds})})
