"""What is known of a node that somebody wants to restart: by the daemon here if it watches it, and by the cloud."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.cli import daemon
from tpuwatch.errors import TpuwatchError
from tpuwatch.export import jsonable
from tpuwatch.export.view import NodeStatus
from tpuwatch.health.evidence import Answer, CloudNode, Evidence, Identity, Known, Problem
from tpuwatch.health.judge import judge
from tpuwatch.health.limits import Limits
from tpuwatch.health.verdict import WELL

if TYPE_CHECKING:
    from tpuwatch.clock import Clock
    from tpuwatch.config import Config
    from tpuwatch.restart.machine.sights import Sight
    from tpuwatch.restart.record import Target

_CALM_SECONDS: Final = 60.0  # a daemon that has judged longer ago than this is not asked


@dataclass(frozen=True, slots=True)
class Seen:
    """A node as it is known now."""

    document: Any  # of the node, as jsonable.node makes it
    by: str  # who judged it
    running: tuple[str, ...] | None  # what holds the TPU there, a line each; None: nobody here can tell
    near: str = ""  # of a node that does not exist: a name that may be meant

    @property
    def well(self) -> bool:
        """Whether nothing is wrong with it, as far as is known."""
        return self.document["verdict"] in {verdict.value for verdict in WELL}

    @property
    def evidence(self) -> tuple[str, ...]:
        """Why it is judged as it is, a sentence each."""
        return tuple(f"{reason['witness']}: {reason['text']}" for reason in self.document["reasons"])


def see(config: Config, target: Target, sight: Sight, clock: Clock) -> Seen:
    """The node's verdict: the daemon's, if one runs here and watches it, else by what the cloud says now."""
    return _by_daemon(config, target, clock) or _by_cloud(config, target, sight, clock)


def _by_daemon(config: Config, target: Target, clock: Clock) -> Seen | None:
    from tpuwatch.export.api import MAX_NODES

    try:
        address = daemon.address(config)
        nodes = daemon.ask(address, "nodes", "nodes", f"?limit={MAX_NODES}")["nodes"]
        document = next((node for node in nodes if _is(node, target)), None)
        if document is None or clock.time() - (document["judged_epoch"] or 0.0) > _CALM_SECONDS:
            return None
        running = _running(daemon.ask(address, "status", "version")) if document["own"] else None
    except (TpuwatchError, KeyError, TypeError, AttributeError):  # nobody answers there, or not as a daemon does
        return None
    return Seen(document, f"the daemon at {address}", running)


def _is(node: Any, target: Target) -> bool:
    name = node["node"].rpartition("/")[2]
    return (node["project"], node["zone"], name) == (target.project, target.zone, target.node)


def _running(status: Any) -> tuple[str, ...] | None:
    if not status.get("host"):
        return None
    return tuple(f"process {one['pid']} of {one['user']}: {one['command']}" for one in status["host"]["holders"])


def _by_cloud(config: Config, target: Target, sight: Sight, clock: Clock) -> Seen:
    answer, near = _asked(config, target, sight, clock)
    now = clock.time()
    place = Identity(project=Known(target.project, "config"), zone=Known(target.zone, "config"))
    judgement = judge(Evidence(target.node, now, identity=place, cloud=answer), Limits())
    status = NodeStatus(target.node, target.project, target.zone, own=False, judgement=judgement, cloud=answer.value)
    return Seen(jsonable.node(status), "what the Cloud TPU API says now", None, near)


def _asked(config: Config, target: Target, sight: Sight, clock: Clock) -> tuple[Answer[CloudNode], str]:
    """All that the API says of the node: the list of the zone tells more than a look, but needs one more permission."""
    from tpuwatch.node.cloud import CloudWitness

    place = Identity(project=Known(target.project, "config"), zone=Known(target.zone, "config"))
    nodes = ("*",) if sight.gone else (target.node,)
    witness = CloudWitness(
        config.cloud.model_copy(update={"nodes": nodes, "enabled": True}),
        lambda: place,
        clock=clock,
        dice=random.Random(),  # noqa: S311 (spreads polls, of which there is one)
        counted=lambda *_: None,
    )
    try:
        listed = witness.ask()
    finally:
        witness.close()
    if sight.gone:
        gone: Answer[CloudNode] = Answer(problem=Problem.GONE, tried=sight.at, detail="The API knows no such node.")
        return gone, _nearest(target.node, [node.name for node in listed.value or ()])
    answer = witness.answers.get(target.node)
    if answer is not None and answer.value is not None and answer.problem is None:
        return replace(answer, value=replace(answer.value, state=sight.state, health=sight.health)), ""
    node = CloudNode(
        target.project,
        target.zone,
        target.node,
        sight.state,
        sight.health,
        hosts=sight.hosts,
        spot=sight.spot,
        queued_resource=sight.queued_resource,
    )
    return Answer(node, sight.at, None, "", sight.at), ""


def _nearest(name: str, known: list[str]) -> str:
    import difflib

    return next(iter(difflib.get_close_matches(name, known, 1)), "")
