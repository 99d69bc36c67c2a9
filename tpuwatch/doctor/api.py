"""What Google's APIs say, asked once for all checks, with the daemon's own clients."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tpuwatch.clock import SystemClock
from tpuwatch.doctor import metadata
from tpuwatch.health.evidence import Answer, Identity, Problem

if TYPE_CHECKING:
    from tpuwatch.config import Config
    from tpuwatch.doctor.environment import Environment
    from tpuwatch.health.evidence import Monitoring
    from tpuwatch.node.cloudclient import CloudClient
    from tpuwatch.node.watchlist import Watch

SECONDS: Final = 5.0  # for each call, if the configuration does not give it less
# After these the other zones need not be asked: the answer would be the same, and as late.
_FOR_ALL: Final = (Problem.CREDENTIALS, Problem.SCOPE, Problem.DISABLED, Problem.UNREACHABLE, Problem.TIMEOUT)


@dataclass(frozen=True, slots=True)
class Zone:
    """What the Cloud TPU API says of one zone: its nodes' names, or why not."""

    watch: Watch
    names: frozenset[str] = frozenset()
    problem: Problem | None = None
    detail: str = ""


def identity(environment: Environment) -> Identity:
    """Who this machine is, by configuration and metadata."""
    return environment.once("identity", lambda: _identity(environment))[0]


def misplaced(environment: Environment) -> str:
    """What the configuration says of this machine that is not so, in a sentence; "" where all of it is."""
    answer = environment.once("identity", lambda: _identity(environment))[1]
    return "" if answer.problem else answer.detail


def zones(environment: Environment) -> list[Zone]:
    """The zones that have something to be watched, and the one of the configuration, each asked for its nodes."""
    return environment.once("zones", lambda: _zones(environment))


def monitoring(environment: Environment) -> Answer[Monitoring]:
    """Whether Cloud Monitoring lets us read."""
    return environment.once("monitoring", lambda: _monitoring(environment))


def _identity(environment: Environment) -> tuple[Identity, Answer[dict[str, str]]]:
    from tpuwatch.node.identity import identify

    config = environment.config
    client = metadata.client(environment) if metadata.failure(environment) is None else None
    return identify(config.cloud, client, config.runtime.ports, clock=environment.clock)


def _zones(environment: Environment) -> list[Zone]:
    from tpuwatch.node.cloudclient import CloudClient

    client = CloudClient(_quick(environment.config).cloud, clock=SystemClock(), counted=lambda _method, _code: None)
    found: list[Zone] = []
    try:
        for watch in _watches(environment):
            found.append(_zone(client, watch))
            if found[-1].problem in _FOR_ALL:
                break
    finally:
        client.close()
    return found


def _zone(client: CloudClient, watch: Watch) -> Zone:
    from tpuwatch.node.apifaults import ApiError

    try:
        pages = client.list_nodes(watch.project, watch.zone)
        return Zone(watch, frozenset(node.name.rpartition("/")[2] for page in pages for node in page.nodes))
    except ApiError as error:
        return Zone(watch, problem=error.fault.problem, detail=str(error))


def _watches(environment: Environment) -> list[Watch]:
    """What is watched, as far as it is known where."""
    from tpuwatch.node.watchlist import Watch, watches

    who = identity(environment)
    placed = [watch for watch in watches(environment.config.cloud.nodes, who) if watch.placed]
    if not placed and who.project.value and who.zone.value:
        return [Watch(who.project.value, who.zone.value, frozenset(), (), home=True)]
    return placed


def _monitoring(environment: Environment) -> Answer[Monitoring]:
    from tpuwatch.node.monitoring import MonitoringWitness

    config = _quick(environment.config)
    witness = MonitoringWitness(
        lambda: identity(environment),
        clock=environment.clock,
        dice=random.Random(),  # noqa: S311 (it spreads requests, of which there is one)
        counted=lambda _method, _code: None,
        endpoint=config.monitoring.endpoint,
        insecure=config.cloud.insecure,
        timeout_seconds=config.cloud.timeout_seconds,
    )
    try:
        return witness.ask()
    finally:
        witness.close()


def _quick(config: Config) -> Config:
    """The configuration with a deadline that a person can wait for."""
    seconds = min(SECONDS, config.cloud.timeout_seconds)
    return config.model_copy(update={"cloud": config.cloud.model_copy(update={"timeout_seconds": seconds})})
