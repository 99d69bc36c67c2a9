"""Which nodes `tpuwatch restart` is about, whether this machine is one of them, and where its ledger is."""

from __future__ import annotations

import getpass
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tpuwatch.health.evidence import Problem
from tpuwatch.node.identity import ask_metadata
from tpuwatch.node.metadata import Metadata, MetadataError, default_host
from tpuwatch.restart.audit import FILE_NAME, Audit
from tpuwatch.restart.ledger.opening import open_ledger
from tpuwatch.restart.record import Target

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tpuwatch.clock import Clock
    from tpuwatch.config import Config
    from tpuwatch.restart.ledger.base import Ledger

_NODE: Final = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
_ZONE: Final = re.compile(r"[a-z][a-z0-9-]{0,62}")
_PROJECT: Final = re.compile(r"([a-z0-9.-]{1,64}:)?[a-z0-9-]{1,63}")
_PATH: Final = re.compile(r"projects/([^/]+)/locations/([^/]+)/nodes/([^/]+)")
_METADATA_SECONDS: Final = 3.0


class MisuseError(Exception):
    """The command was used in a wrong way; the message says in which."""


@dataclass(frozen=True, slots=True)
class Here:
    """What the metadata server tells of this machine."""

    told: Mapping[str, str]
    doubt: str = ""  # why it is not known which node this machine belongs to, if it may belong to one

    def is_of(self, target: Target) -> bool:
        """Whether this machine belongs to the node, as far as is known."""
        if self.told.get("node") != target.node or self.told.get("zone", target.zone) != target.zone:
            return False
        project = self.told.get("project", target.project)
        # A project's number cannot be compared with its id: then it is taken for the same.
        return project == target.project or project.isdecimal() or target.project.isdecimal()


def here(clock: Clock) -> Here:
    """Ask the metadata server who this machine is. Outside of Google Cloud there is none."""
    metadata = Metadata(default_host(), clock=clock, timeout_seconds=_METADATA_SECONDS)
    try:
        return Here(ask_metadata(metadata))
    except MetadataError as error:
        outside = error.problem in (Problem.ABSENT, Problem.FOREIGN)
        return Here({}, "" if outside else str(error))
    finally:
        metadata.close()


def targets(names: Iterable[str], zone: str, project: str, config: Config, this: Here) -> list[Target]:
    """The nodes of these names, each once. Raises MisuseError for what is no node, and where its place is not known."""
    zone = zone or config.cloud.zone or this.told.get("zone", "")
    project = project or config.cloud.project or this.told.get("project", "")
    found = list(dict.fromkeys(_target(name, zone, project) for name in names))
    for target in found:
        if target.project.isdecimal() and target.project != config.cloud.project:
            # By another name the same node would have another record, and nobody would see what is under way there.
            raise MisuseError(f"{target.project} is a project's number: give its id, by which restarts are recorded")
    return found


def _target(name: str, zone: str, project: str) -> Target:
    if match := _PATH.fullmatch(name):
        target = Target(match[1], match[2], match[3])
    else:
        place, _, node = name.rpartition("/")
        target = Target(project, place or zone, node)
    if not _NODE.fullmatch(target.node) or not (_ZONE.fullmatch(target.zone) or not target.zone):
        raise MisuseError(
            f"{name!r} is no node: write its name (train-1), zone/name, or projects/PROJECT/locations/ZONE/nodes/NAME"
        )
    lacking = [word for word, value in (("project", target.project), ("zone", target.zone)) if not value]
    if lacking:
        options = " and ".join(f"--{word}" for word in lacking)
        keys = " and ".join(f"`{word}`" for word in lacking)
        raise MisuseError(
            f"nothing tells the {' and the '.join(lacking)} of {name}: give {options}, or {keys} in [cloud]"
        )
    if not _PROJECT.fullmatch(target.project):
        raise MisuseError(f"{target.project!r} is no project's id")
    return target


@dataclass(frozen=True, slots=True)
class Books:
    """Where restarts are recorded, and who this is."""

    ledger: Ledger
    audit: Audit
    where: str  # the ledger is, for people
    actor: str  # "user@host"


def books(config: Config, clock: Clock) -> Books:
    """The ledger and the audit of this machine. Nothing is made before something is written.

    Where tpuwatch is not set up, which may be anybody's workstation, they are in the user's own state directory.
    """
    state = config.state.dir
    if config.source is None and not state.exists() and not os.access(state.parent, os.W_OK):
        state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "tpuwatch"
        directory = state
    else:
        directory = config.ledger_dir
    ledger = open_ledger(config, clock, directory=directory)
    where = f"gs://{config.ledger.bucket}/{config.ledger.prefix}" if config.ledger.kind == "gcs" else str(directory)
    return Books(ledger, Audit(state / FILE_NAME), where, _actor())


def _actor() -> str:
    try:
        user = os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        user = str(os.getuid())
    return f"{user}@{os.uname().nodename}"
