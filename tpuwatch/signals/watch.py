"""Which nodes are watched, by zone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import translate
from typing import TYPE_CHECKING, Final

from tpuwatch.model import node_label

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tpuwatch.model import Identity

_GLOB: Final = re.compile(r"[*?]")


@dataclass(frozen=True, slots=True)
class Watch:
    """What is watched in one zone. An empty project or zone is not known."""

    project: str
    zone: str
    names: frozenset[str]  # watched even if the API does not list them: then they are gone
    patterns: tuple[re.Pattern[str], ...]

    @property
    def placed(self) -> bool:
        """Whether it is known where to ask."""
        return bool(self.project and self.zone)

    @property
    def where(self) -> str:
        """For sentences."""
        return f"zone {self.zone} of project {self.project}"

    def has(self, name: str) -> bool:
        """Whether a node of this zone is watched."""
        return name in self.names or any(pattern.fullmatch(name) for pattern in self.patterns)

    def label(self, name: str) -> str:
        """What identifies a node among all that are watched."""
        return node_label(self.zone, name)


def watches(nodes: Iterable[str], identity: Identity) -> tuple[Watch, ...]:
    """A watch for each zone, from `nodes` under [cloud] ("name", "glob*", "zone/name") and the machine's own node."""
    home = identity.zone.value
    zones: dict[str, tuple[set[str], set[str]]] = {}
    for entry in (*nodes, identity.node.value):
        zone, _, name = entry.rpartition("/")
        names, globs = zones.setdefault(zone or home, (set(), set()))
        if name:
            (globs if _GLOB.search(name) else names).add(name)
    return tuple(
        Watch(
            project=identity.project.value,
            zone=zone,
            names=frozenset(names),
            patterns=tuple(re.compile(translate(glob)) for glob in sorted(globs)),
        )
        for zone, (names, globs) in sorted(zones.items())
        if names or globs
    )
