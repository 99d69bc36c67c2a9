"""The tpuwatch of other nodes as a witness: each is asked how it sees its node, and one that falls silent is noticed.

Silence is told only of one that has answered since its node was last seen to come up. Where many fall silent at once,
this machine's own network is the suspect, and the silence of none counts.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from typing import TYPE_CHECKING, Final

from tpuwatch.health.evidence import Agent, Answer, Problem
from tpuwatch.node import agentcall
from tpuwatch.node.agentcall import AgentError, Told
from tpuwatch.node.channel import Dialer
from tpuwatch.node.pacing import Pacing

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Mapping

    from tpuwatch.clock import Clock
    from tpuwatch.config.schema import Agents
    from tpuwatch.health.evidence import CloudNode, Word

AT_ONCE: Final = 16  # questions under way
FORGET_SECONDS: Final = 86_400.0  # one that has been silent for longer counts as one that never answered
STORM_COUNT: Final = 2  # so many silent at once, if they are …
STORM_SHARE: Final = 0.25  # … so many of those that have answered, in a zone or in all, are a storm
_STORM_TRIES: Final = 2  # one lost answer is no silence
_UP: Final = frozenset({"READY", "UNKNOWN"})  # states in which a machine runs; any other is the end of this boot
_NOBODY: Final = "There is no other node that runs whose tpuwatch could be asked."
_UNHEARD: Final = (
    "No tpuwatch of another node has answered yet. On the nodes, set `listen` under [http] to an address that this "
    "machine can reach, such as 0.0.0.0:9478, and let it through the firewall."
)
_NOT_YET: Answer[Agent] = Answer(detail="It was not asked yet.")

_log = logging.getLogger(__name__)


class AgentsWitness:
    """Asks the other nodes' tpuwatch. `ask` is for one thread; `follow`, `close` and `answers` are for any."""

    def __init__(self, agents: Agents, *, clock: Clock, dice: random.Random) -> None:
        self.answers: Mapping[str, Answer[Agent]] = {}  # by label, replaced where there is news, and now and then
        self._agents = agents
        self._clock = clock
        self._dice = dice
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}
        self._closed = False
        self._told_at = -1e9  # when `answers` was replaced, by the monotonic clock

    @property
    def due_in(self) -> float:
        """Seconds until the next of them is to be asked; questions that are due together are asked together."""
        with self._lock:
            due = min((known.pacing.due_in for known in self._known.values()), default=self._agents.poll_seconds)
        return max(due, min(2.0, self._agents.poll_seconds / 10))

    def follow(self, nodes: Mapping[str, Answer[CloudNode]], own: str) -> bool:
        """Take in what the cloud says of all watched nodes, by label; whether there is one more to ask.

        Of a node that is not up, or was created anew, nothing that was heard before counts any more.
        """
        with self._lock:
            before, self._known = self._known, {}
            for label, answer in nodes.items():
                node = answer.value
                if label == own or node is None or answer.problem is Problem.GONE or node.state not in _UP:
                    continue
                known = before.get(label)
                if known is None or known.node.created != node.created:
                    pacing = Pacing(self._agents.poll_seconds, clock=self._clock, dice=self._dice)
                    known = _Known(label, pacing, self._clock)
                known.node, known.url = node, self._url(label, node)
                self._known[label] = known
            return bool(self._known.keys() - before.keys())

    def ask(self) -> Answer[tuple[Agent, ...]]:
        """Ask those that are due. Takes two timeouts at most: who is not reached by then is due still."""
        self._ask_all(self._due())
        with self._lock:
            knowns = list(self._known.values())
        storm = _storm(knowns)
        answers = {known.label: known.answer for known in knowns}
        if storm:
            answers |= {one.label: _suspect(one.answer, storm) for one in knowns if one.silent}
        self._replace(answers)
        return self._summary(knowns, storm)

    def close(self) -> None:
        """Break off what is under way, and ask no more. May be called from any thread."""
        with self._lock:
            self._closed = True
            knowns = list(self._known.values())
        for known in knowns:
            known.dialer.close()

    def _url(self, label: str, node: CloudNode) -> str:
        if label in self._agents.addresses:
            return self._agents.addresses[label]
        if not node.address:
            return ""
        host = f"[{node.address}]" if ":" in node.address else node.address
        return f"http://{host}:{self._agents.port}"

    def _due(self) -> list[_Known]:
        """Who is due; of those that failed only so many that the others do not wait for them."""
        with self._lock:
            due = [known for known in self._known.values() if known.pacing.due_in <= 0]
        failed = sorted((one for one in due if one.pacing.failures), key=lambda one: one.tried_mono)
        return [one for one in due if not one.pacing.failures] + failed[:AT_ONCE]

    def _ask_all(self, due: Iterable[_Known]) -> None:
        waiting = deque(due)
        until = self._clock.monotonic() + self._agents.timeout_seconds

        def work() -> None:
            while not self._closed and self._clock.monotonic() < until:
                try:
                    known = waiting.popleft()
                except IndexError:
                    return
                known.ask(self._agents.timeout_seconds)

        more = [threading.Thread(target=work, name="agent", daemon=True) for _ in range(min(AT_ONCE, len(waiting)) - 1)]
        for thread in more:
            thread.start()
        work()
        for thread in more:
            thread.join()

    def _replace(self, answers: dict[str, Answer[Agent]]) -> None:
        """Put up the answers; those that only say again what was said are put up at times, for all is judged anew."""
        now = self._clock.monotonic()
        before = self.answers
        same = answers.keys() == before.keys() and all(
            _says(answers[label]) == _says(before[label]) for label in before
        )
        if not same or now - self._told_at >= self._agents.poll_seconds / 3:
            self.answers, self._told_at = answers, now

    def _summary(self, knowns: list[_Known], storm: str) -> Answer[tuple[Agent, ...]]:
        heard = tuple(known.answer.value for known in knowns if known.answer.value is not None)
        at = max((agent.answered for agent in heard), default=None)
        problem, detail = Problem.ABSENT, _UNHEARD if knowns else _NOBODY
        if storm:
            problem, detail = Problem.UNREACHABLE, storm
        good = bool(heard) and not storm
        return Answer(heard, at, None if good else problem, "" if good else detail, self._clock.time())


class _Known:
    """One node's tpuwatch: what it said last, and since when it says nothing."""

    node: CloudNode
    url: str

    def __init__(self, label: str, pacing: Pacing, clock: Clock) -> None:
        self.label = label
        self.pacing = pacing
        self.dialer = Dialer(clock)
        self.answer: Answer[Agent] = _NOT_YET  # replaced, never changed
        self.silent = False  # for more than one question
        self.tried_mono = 0.0
        self._clock = clock
        self._word: Word | None = None
        self._answered: float | None = None  # these two by the monotonic clock
        self._silent_since: float | None = None
        self._tries = 0
        self._refuses = False

    @property
    def heard(self) -> bool:
        """Whether it has answered in this boot of its node."""
        return self._answered is not None

    def ask(self, seconds: float) -> None:
        """Ask it once."""
        self.tried_mono = self._clock.monotonic()
        try:
            told = self._told(seconds)
        except AgentError as error:
            self._failed(error)
        except Exception as error:  # noqa: BLE001 # one that nobody foresaw shall not end the others' turn
            _log.warning("The tpuwatch of %s could not be asked.", self.label, exc_info=error)
            self._failed(AgentError(Problem.INTERNAL, "An error in tpuwatch, which its log tells."))
        else:
            self.pacing.succeeded()
            self._word, self._answered = told.word, self._clock.monotonic()
            self._silent_since, self._tries, self._refuses = None, 0, False
            self._say(None, "")

    def _told(self, seconds: float) -> Told:
        if not self.url:
            text = "The Cloud TPU API tells no address of it: give one in `addresses` under [agents]."
            raise AgentError(Problem.UNREACHABLE, text)
        told = agentcall.ask(self.url, self.dialer, clock=self._clock, seconds=seconds)
        if other := _mismatch(told, self.node):
            text = f"At {self.url} {other}, not the one of {self.node.name}. Check `addresses` under [agents]."
            raise AgentError(Problem.FOREIGN, text)
        return told

    def _failed(self, error: AgentError) -> None:
        self.pacing.failed()
        now = self._clock.monotonic()
        if not (error.silent or error.refused):  # somebody else answered, or the fault is here
            self._silent_since, self._tries, self._refuses = None, 0, False
            self._say(error.problem, str(error))
            return
        if self._silent_since is None or self._refuses is not error.refused:
            self._silent_since, self._tries, self._refuses = now, 0, error.refused
        self._tries += 1
        if now - self._silent_since > FORGET_SECONDS:
            self._answered = None
        self._say(None if self.heard else Problem.ABSENT, str(error))

    def _say(self, problem: Problem | None, detail: str) -> None:
        now, mono = self._clock.time(), self._clock.monotonic()
        value = None
        if self._answered is not None:
            since = None if self._silent_since is None else now - (mono - self._silent_since)
            answered = now - (mono - self._answered)
            value = Agent(answered, self._word, since, self._tries, self._refuses)
        self.silent = self.heard and self._tries >= _STORM_TRIES and not self._refuses
        self.answer = Answer(value, None if value is None else now, problem, detail, now)


def _mismatch(told: Told, node: CloudNode) -> str:
    """Who answers, if it is not the tpuwatch of this node."""
    if not told.node:
        return "answers a tpuwatch that does not know of which node it is"
    mine = (node.project, node.zone, node.name)
    theirs = (told.project or node.project, told.zone or node.zone, told.node)
    return "" if mine == theirs else f"the tpuwatch of {'/'.join(theirs)} answers"


def _says(answer: Answer[Agent]) -> tuple[object, ...]:
    """What of an answer is news when it changes; that it is a little older is none."""
    agent = answer.value
    word = agent.word if agent else None
    told = (word.verdict, word.rung, word.witnesses) if word else None
    silence = (agent.silent_since is None, min(agent.tries, 5), agent.refuses) if agent else None
    return told, silence, answer.problem


def _suspect(answer: Answer[Agent], storm: str) -> Answer[Agent]:
    return Answer(answer.value, answer.at, Problem.UNREACHABLE, storm, answer.tried)


def _storm(knowns: list[_Known]) -> str:
    """That many have fallen silent at once, as a sentence; else ""."""
    heard = [known for known in knowns if known.heard]
    all_of = Counter(known.node.zone for known in heard)
    silent = Counter(known.node.zone for known in heard if known.silent)
    groups = [(f"in zone {zone}", silent[zone], all_of[zone]) for zone in sorted(silent)]
    for where, count, many in [("that are watched", silent.total(), all_of.total()), *groups]:
        if count >= STORM_COUNT and count >= STORM_SHARE * many:
            return (
                f"{count} of the {many} nodes {where} whose tpuwatch has answered are silent at once: this machine's "
                "own network is the suspect, so the silence of none of them counts."
            )
    return ""
