"""Where the witnesses put their latest answers, and where the judge finds them. Safe from any thread."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.health.evidence import (
    OFF,
    Agent,
    Answer,
    CloudNode,
    Evidence,
    Host,
    Identity,
    Logs,
    Monitoring,
    Notices,
    Problem,
    Runtime,
    Witness,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

HERE = "this-vm"  # the label of a machine of which no node name is known


@dataclass(frozen=True, slots=True)
class Posted:
    """All that the witnesses have said, at one moment. Never changed once it is posted."""

    identity: Identity = field(default_factory=Identity)
    cloud: Mapping[str, Answer[CloudNode]] = field(default_factory=dict)  # by label; the own node's is `own`
    api: Answer[int] = field(default_factory=Answer)  # how many nodes the latest poll told of
    runtime: Answer[Runtime] = field(default_factory=Answer)
    host: Answer[Host] = field(default_factory=Answer)
    logs: Answer[Logs] = field(default_factory=Answer)
    notices: Answer[Notices] = field(default_factory=Answer)
    monitoring: Answer[Monitoring] = field(default_factory=Answer)
    asked: Answer[Any] = OFF  # how it stands with the other nodes' tpuwatch as a whole
    agents: Mapping[str, Answer[Agent]] = field(default_factory=dict)  # each of them, by the node's label

    @property
    def own(self) -> str:
        """The label of the node that this machine belongs to."""
        return self.identity.node.value or HERE

    def answers(self) -> dict[Witness, Answer[Any]]:
        """The latest answer of every witness."""
        return {
            Witness.CLOUD: self.api,
            Witness.RUNTIME: self.runtime,
            Witness.HOST: self.host,
            Witness.LOGS: self.logs,
            Witness.METADATA: self.notices,
            Witness.MONITORING: self.monitoring,
            Witness.AGENT: self.asked,
        }

    def evidence(self, now: float) -> Evidence:
        """What is known at `now` of the node that this machine belongs to."""
        # Without a word on this very node the API's own state counts: whether it could be asked, and why not.
        api = self.api
        mine = self.cloud.get(self.own) or Answer(None, None, api.problem or Problem.ABSENT, api.detail, api.tried)
        return Evidence(
            node=self.own,
            now=now,
            own=True,
            identity=self.identity,
            cloud=mine,
            runtime=self.runtime,
            host=self.host,
            logs=self.logs,
            notices=self.notices,
            monitoring=self.monitoring,
        )

    def others(self, now: float) -> list[Evidence]:
        """What is known of the nodes that are watched from here."""
        unheard = OFF if self.asked.problem is Problem.OFF else _NOBODY
        return [
            Evidence(node=label, now=now, cloud=answer, agent=self.agents.get(label, unheard), **_ELSEWHERE)
            for label, answer in sorted(self.cloud.items())
            if label != self.own
        ]


_NOBODY: Final[Answer[Any]] = Answer(problem=Problem.ABSENT, detail="There was no reason yet to ask it.")
# What only a daemon on the machine itself can ask.
_ELSEWHERE: Final[dict[str, Any]] = dict.fromkeys(("runtime", "host", "logs", "notices", "monitoring"), OFF)


class Board:
    """Holds what is posted. `changed` is called, from the poster's thread, after each post that brings news.

    An answer that only says again what it said before, a little later, is none: the judge looks at ages by himself.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._lock = threading.Lock()
        self._posted = Posted()

    @property
    def posted(self) -> Posted:
        """What holds now."""
        return self._posted

    def post(self, **answers: Any) -> None:
        """Put up new answers, by the names of Posted's fields."""
        with self._lock:
            before = self._posted
            self._posted = replace(before, **answers)
        if any(_is_news(getattr(before, name), answer) for name, answer in answers.items()):
            self._changed()


def _is_news(before: Any, now: Any) -> bool:
    if isinstance(before, Answer) and isinstance(now, Answer):
        return (before.value, before.problem, before.detail) != (now.value, now.problem, now.detail)
    return before is not now
