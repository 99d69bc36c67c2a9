"""The nodes that an operator names, and whether this machine belongs to one of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tpuwatch.google import MetadataClient, MetadataError, metadata_host
from tpuwatch.model import Problem, Target
from tpuwatch.signals import ask_metadata

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tpuwatch.config import CloudConfig, Config
    from tpuwatch.core import Clock

_NODE: Final = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
_ZONE: Final = re.compile(r"[a-z][a-z0-9-]{0,62}")
_PROJECT: Final = re.compile(r"([a-z0-9.-]{1,64}:)?[a-z0-9-]{1,63}")
_PATH: Final = re.compile(r"projects/([^/]+)/locations/([^/]+)/nodes/([^/]+)")
_METADATA_SECONDS: Final = 3.0


class UsageError(Exception):
    """The command was used in a wrong way; the message explains which."""


@dataclass(frozen=True, slots=True)
class OwnNode:
    """The node that this machine belongs to, as the metadata server reports it."""

    identity: Mapping[str, str]  # by the names of Identity's fields; empty on a machine that belongs to no node
    problem: str = ""  # why it is unknown, where this machine may belong to a node

    def matches(self, target: Target) -> bool:
        """Whether this machine belongs to the node, as far as is known."""
        if self.identity.get("node") != target.node or self.identity.get("zone", target.zone) != target.zone:
            return False
        project = self.identity.get("project", target.project)
        # A project's number cannot be compared with its ID: they are taken for the same project.
        return project == target.project or project.isdecimal() or target.project.isdecimal()


def find_own_node(config: CloudConfig, clock: Clock) -> OwnNode:
    """Ask the metadata server which node this machine belongs to. Outside of Google Cloud there is no such server."""
    server = metadata_host(config.metadata_server)
    metadata = MetadataClient(server, clock=clock, timeout_seconds=_METADATA_SECONDS)
    try:
        return OwnNode(ask_metadata(metadata))
    except MetadataError as error:
        outside = error.problem in (Problem.ABSENT, Problem.FOREIGN)
        return OwnNode({}, "" if outside else str(error))
    finally:
        metadata.close()


def parse_targets(names: Iterable[str], zone: str, project: str, config: Config, own_node: OwnNode) -> list[Target]:
    """The nodes of these names, each once.

    A zone or project that a name lacks is `zone` or `project`, else that of [cloud], else that of this machine. Raises
    UsageError for a name that is not one of a node, and where the zone or the project is unknown.
    """
    zone = zone or config.cloud.zone or own_node.identity.get("zone", "")
    project = project or config.cloud.project or own_node.identity.get("project", "")
    targets = list(dict.fromkeys(_parse_target(name, zone, project) for name in names))
    for target in targets:
        if target.project.isdecimal() and target.project != config.cloud.project:
            # Under another name the same node would have a second record, which hides what is in progress there.
            raise UsageError(f"{target.project} is a project's number: give its ID, by which restarts are recorded")
    return targets


def _parse_target(name: str, zone: str, project: str) -> Target:
    if match := _PATH.fullmatch(name):
        target = Target(match[1], match[2], match[3])
    else:
        given_zone, _, node = name.rpartition("/")
        target = Target(project, given_zone or zone, node)
    if not _NODE.fullmatch(target.node) or not (_ZONE.fullmatch(target.zone) or not target.zone):
        raise UsageError(
            f"{name!r} is not the name of a node: write its name (train-1), zone/name, or "
            "projects/PROJECT/locations/ZONE/nodes/NAME"
        )
    missing = [word for word, value in (("project", target.project), ("zone", target.zone)) if not value]
    if missing:
        options = " and ".join(f"--{word}" for word in missing)
        keys = " and ".join(f"`{word}`" for word in missing)
        raise UsageError(f"the {' and the '.join(missing)} of {name} is unknown: give {options}, or {keys} in [cloud]")
    if not _PROJECT.fullmatch(target.project):
        raise UsageError(f"{target.project!r} is not a project's ID")
    return target
