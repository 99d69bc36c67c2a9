"""What the world was like some time ago: for answers that are old, as those of a service with many copies can be."""

from __future__ import annotations

from collections import deque
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tpuwatch.sim.cloud.nodes import SimNode
from tpuwatch.sim.cloud.operations import SimOperation

if TYPE_CHECKING:
    from collections.abc import Mapping

_T = TypeVar("_T", SimNode, SimOperation)


class Moment(NamedTuple):
    """What there was at a time: copies, which do not change."""

    time: float
    nodes: dict[str, SimNode]
    operations: dict[str, SimOperation]


class Past:
    """Moments at which something had changed, the newest last. Used under the world's lock."""

    def __init__(self) -> None:
        self._moments: deque[Moment] = deque()

    def keep(
        self, now: float, nodes: Mapping[str, SimNode], operations: Mapping[str, SimOperation], seconds: float
    ) -> None:
        """Remember what there is now, and forget what was longer than so many seconds ago; all of it for 0."""
        if not seconds:
            self._moments.clear()
            return
        last = self._moments[-1] if self._moments else Moment(now, {}, {})
        if not self._moments or (last.nodes, last.operations) != (nodes, operations):
            self._moments.append(
                Moment(
                    now,
                    {name: _copy_of(node, last.nodes.get(name)) for name, node in nodes.items()},
                    {name: _copy_of(one, last.operations.get(name)) for name, one in operations.items()},
                )
            )
        while len(self._moments) > 1 and self._moments[1].time <= now - seconds:
            self._moments.popleft()

    def at(self, time: float) -> Moment | None:
        """What there was then, or else at the first moment that is remembered, if any is."""
        known = [moment for moment in self._moments if moment.time <= time]
        return known[-1] if known else self._moments[0] if self._moments else None


def _copy_of(one: _T, before: _T | None) -> _T:
    """A copy, with its own lists; the one from before if that is like it."""
    if before is not None and before == one:
        return before
    values = {field.name: getattr(one, field.name) for field in fields(one)}
    lists: dict[str, Any] = {name: value[:] for name, value in values.items() if isinstance(value, list)}
    return replace(one, **lists)
