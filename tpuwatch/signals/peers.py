"""The signal of other machines' tpuwatch: each is asked for its verdict, and one that stops answering is noticed.

A watcher asks every worker of the nodes that it watches. A worker of a slice asks those that come next by their
numbers, so that each is asked by as many. Silence is reported only of one that has answered since its node last came
up. If many stop answering at once, this machine's own network is the likely cause, and no silence counts.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tpuwatch.core import HttpClient, Pacing
from tpuwatch.model import Answer, Peer, Problem, Signal, node_label, split_label
from tpuwatch.signals.peer_access import PeerAccess
from tpuwatch.signals.peer_calls import PeerError, ask

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Iterator, Mapping

    from tpuwatch.config import PeersConfig
    from tpuwatch.core import Clock
    from tpuwatch.model import CloudNode, PeerVerdict, Snapshot
    from tpuwatch.signals.peer_calls import PeerReply
    from tpuwatch.signals.sources import SignalSources

AT_ONCE: Final = 16  # questions under way
RING: Final = 16  # workers of its own slice that one asks
_RING_POLLS: Final = 2  # polls between two questions to one of them
FORGET_SECONDS: Final = 86_400.0  # one that has been silent for longer counts as one that never answered
OUTAGE_COUNT: Final = 2  # so many silent at once, if they are …
OUTAGE_SHARE: Final = 0.25  # … so many of those that have answered, in a zone or in all, are an outage here
_OUTAGE_TRIES: Final = 2  # one lost answer is not silence
_NOBODY: Final = "There is no other machine whose tpuwatch could be asked."
_UNHEARD: Final = (
    "No tpuwatch of another machine has answered yet. There, set `listen` under [http] to an address that this "
    "machine can reach, such as 0.0.0.0:9478, and let it through the firewall."
)
_NOT_YET: Answer[Peer] = Answer(detail="It was not asked yet.")

_LISTS: Final = 2  # that may lack a node before its peer is forgotten
_log = logging.getLogger(__name__)


class PeersSignal:
    """Asks the other nodes' tpuwatch. `ask` is for one thread; `follow`, `close` and `answers` are for any."""

    def __init__(self, peers: PeersConfig, *, clock: Clock, rng: random.Random) -> None:
        # By the node's label and the worker's number; replaced when an answer changed, and periodically.
        self.answers: Mapping[str, Mapping[int, Answer[Peer]]] = {}
        self._peers = peers
        self._access = PeerAccess(peers)
        self._clock = clock
        self._rng = rng
        self._lock = threading.Lock()
        self._known: dict[tuple[str, int], _Peer] = {}
        self._closed = False
        self._replaced_at = -1e9  # when `answers` was replaced, by the monotonic clock

    @property
    def due_in(self) -> float:
        """Seconds until the next of them is to be asked; questions that are due together are asked together."""
        with self._lock:
            due = min((peer.pacing.due_in for peer in self._known.values()), default=self._peers.poll_seconds)
        return max(due, min(2.0, self._peers.poll_seconds / 10))

    def follow(self, nodes: Mapping[str, Answer[CloudNode]], here: Snapshot) -> bool:
        """Update the peers from the cloud's answers by label, and from what is known `here`. Returns whether there is a
        new one to ask.

        Earlier answers of a node that is not up, or was created again, no longer count. One that a list lacks is
        forgotten when further lists lack it too: a list may lose a node once.
        """
        expected = {
            (label, place.worker): place
            for label, answer in nodes.items()
            if label != here.own and answer.value is not None and answer.problem is not Problem.GONE
            for place in self._places(answer.value, here.own)
        }
        own = nodes.get(here.own)
        expected |= {(here.own, one.worker): one for one in self._ring(own.value if own else None, here)}
        with self._lock:
            before, self._known = self._known, {}
            for key, place in expected.items():
                peer = before.get(key)
                if peer is None or peer.place.created != place.created:
                    interval = self._peers.poll_seconds * (_RING_POLLS if place.of_own_slice else 1)
                    peer = _Peer(Pacing(interval, clock=self._clock, rng=self._rng), self._clock, self._access)
                peer.place, peer.missed = place, 0
                self._known[key] = peer
            for key, peer in before.items():
                other = key[0] != here.own or peer.place.of_own_slice
                if key not in expected and other and peer.missed < _LISTS and _may_run(nodes.get(key[0])):
                    peer.missed += 1
                    self._known[key] = peer
            return bool(self._known.keys() - before.keys())

    def ask(self) -> Answer[tuple[Peer, ...]]:
        """Ask the peers that are due. Takes two timeouts at most; a peer that is not reached by then stays due."""
        self._ask_all(self._due())
        with self._lock:
            known = dict(self._known)
        peers = list(known.values())
        outage = _outage([peer for peer in peers if not peer.place.of_own_slice and peer.place.worker == 0])
        ring = _ring_outage([peer for peer in peers if peer.place.of_own_slice])
        answers: dict[str, dict[int, Answer[Peer]]] = {}
        for (label, worker), peer in known.items():
            suspect = ring if peer.place.of_own_slice else outage
            answer = _suspect(peer.answer, suspect) if suspect and peer.silent else peer.answer
            answers.setdefault(label, {})[worker] = answer
        self._replace(answers)
        return self._summary(peers, outage or ring)

    def ask_now(self, label: str) -> Peer | None:
        """Ask the first worker of a node, due or not, beside `ask` and without a mark on its answers; None where it
        cannot be asked.

        For any thread. Takes one timeout at most.
        """
        with self._lock:
            peer = None if self._closed else self._known.get((label, 0))
        return peer.ask_now(self._peers.timeout_seconds) if peer is not None else None

    def close(self) -> None:
        """Cancel requests in progress, and make no more. May be called from any thread."""
        with self._lock:
            self._closed = True
            peers = list(self._known.values())
        for peer in peers:
            peer.client.close()

    def _places(self, node: CloudNode, own: str) -> Iterator[_Place]:
        """Where each worker of another node is asked; nowhere while its machines are not up."""
        if not node.runs:
            return
        name = (node.project, node.zone, node.name)
        for worker, address in enumerate(node.addresses or ("",)):
            url = self._peers.url(address)
            if worker == 0:
                url = self._given(node, own) or url
            yield _Place(*name, worker, url, node.created)

    def _ring(self, node: CloudNode | None, here: Snapshot) -> Iterator[_Place]:
        """The workers of this machine's own slice that come next by their numbers. Each is asked by as many."""
        identity = here.identity
        addresses = here.endpoints or (node.addresses if node is not None else ())
        number = int(identity.worker.value or -1)
        if not identity.node.value or not 0 <= number < len(addresses):
            return
        name = (identity.project.value, identity.zone.value, identity.node.value)
        for step in range(1, min(RING, len(addresses) - 1) + 1):
            worker = (number + step) % len(addresses)
            yield _Place(*name, worker, self._peers.url(addresses[worker]), of_own_slice=True)

    def _given(self, node: CloudNode, own: str) -> str:
        """The address of its first worker in `addresses`: a name without a zone is of the zone of this machine."""
        home, _ = split_label(own)
        names = (node_label(node.zone, node.name), *([node.name] if node.zone == home else []))
        return next((self._peers.addresses[name] for name in names if name in self._peers.addresses), "")

    def _due(self) -> list[_Peer]:
        """Return the peers that are due; of those that failed only so many that the others do not wait for them."""
        with self._lock:
            due = [peer for peer in self._known.values() if peer.pacing.due_in <= 0]
        failed = sorted((one for one in due if one.pacing.failures), key=lambda one: one.tried_mono)
        return [one for one in due if not one.pacing.failures] + failed[:AT_ONCE]

    def _ask_all(self, due: Iterable[_Peer]) -> None:
        waiting = deque(due)
        until = self._clock.monotonic() + self._peers.timeout_seconds

        def work() -> None:
            while not self._closed and self._clock.monotonic() < until:
                try:
                    peer = waiting.popleft()
                except IndexError:
                    return
                peer.ask(self._peers.timeout_seconds)

        more = [threading.Thread(target=work, name="peer", daemon=True) for _ in range(min(AT_ONCE, len(waiting)) - 1)]
        for thread in more:
            thread.start()
        work()
        for thread in more:
            thread.join()

    def _replace(self, answers: Mapping[str, Mapping[int, Answer[Peer]]]) -> None:
        """Replace the answers; if nothing has changed only now and then, as each replacement has all nodes judged."""
        now = self._clock.monotonic()
        before = self.answers
        same = answers.keys() == before.keys() and all(
            workers.keys() == before[label].keys()
            and all(_comparable(answer) == _comparable(before[label][worker]) for worker, answer in workers.items())
            for label, workers in answers.items()
        )
        if not same or now - self._replaced_at >= self._peers.poll_seconds / 3:
            self.answers, self._replaced_at = answers, now

    def _summary(self, peers: list[_Peer], outage: str) -> Answer[tuple[Peer, ...]]:
        answered = tuple(peer.answer.value for peer in peers if peer.answer.value is not None)
        at = max((peer.answered for peer in answered), default=None)
        problem, detail = Problem.ABSENT, _UNHEARD if peers else _NOBODY
        if outage:
            problem, detail = Problem.UNREACHABLE, outage
        good = bool(answered) and not outage
        return Answer(answered, at, None if good else problem, "" if good else detail, self._clock.time())


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a tpuwatch is expected: the worker of a node."""

    project: str
    zone: str
    node: str
    worker: int
    url: str  # "" where no address is known
    created: float | None = None  # the node
    of_own_slice: bool = False

    @property
    def called(self) -> str:
        """For the log."""
        return f"{self.node}, worker {self.worker}" if self.worker else self.node


def _may_run(answer: Answer[CloudNode] | None) -> bool:
    """Whether a node may run, of whose workers a list lacks one: it may have lost the node or an address."""
    node = answer.value if answer is not None else None
    return node is None or (answer is not None and answer.problem is Problem.GONE) or node.runs


class _Peer:
    """The tpuwatch of one machine: its last answer, and since when there is none."""

    place: _Place
    missed: int  # lists without it, one after the other

    def __init__(self, pacing: Pacing, clock: Clock, access: PeerAccess) -> None:
        self._access = access
        self.pacing = pacing
        self.client = HttpClient(clock)
        self.answer: Answer[Peer] = _NOT_YET  # replaced, never changed
        self.silent = False  # for more than one question
        self.tried_mono = 0.0
        self._clock = clock
        self._verdict: PeerVerdict | None = None
        self._answered: float | None = None  # these two by the monotonic clock
        self._silent_since: float | None = None
        self._tries = 0
        self._refuses = False
        self._boot_id = ""

    @property
    def has_answered(self) -> bool:
        """Whether it has answered in this boot of its node."""
        return self._answered is not None

    def ask(self, seconds: float) -> None:
        """Ask it once."""
        self.tried_mono = self._clock.monotonic()
        try:
            reply = self._request(seconds, self.client)
        except PeerError as error:
            self._failed(error)
        except Exception as error:  # noqa: BLE001 # an unexpected error must not end the turn of the others
            if self.answer.problem is not Problem.INTERNAL:  # it is logged once, and not at each poll
                _log.warning("The tpuwatch of %s could not be asked.", self.place.called, exc_info=error)
            self._failed(PeerError(Problem.INTERNAL, "An error in tpuwatch; its log has the details."))
        else:
            self.pacing.succeeded()
            self._verdict, self._answered = reply.verdict, self._clock.monotonic()
            self._boot_id = reply.boot_id
            self._silent_since, self._tries, self._refuses = None, 0, False
            self._update(None, "")

    def ask_now(self, seconds: float) -> Peer | None:
        """What it answers now, or its silence; None where the fault may be here."""
        try:
            reply = self._request(seconds, HttpClient(self._clock))
        except PeerError as error:
            now = self._clock.time()
            return Peer(now, None, now, 1, error.refused) if error.silent or error.refused else None
        except Exception:  # noqa: BLE001 # nothing is known then
            _log.warning("The tpuwatch of %s could not be asked.", self.place.called, exc_info=True)
            return None
        return Peer(self._clock.time(), reply.verdict, boot_id=reply.boot_id)

    def _request(self, seconds: float, client: HttpClient) -> PeerReply:
        url = self.place.url
        if not url:
            text = "The Cloud TPU API gives no address of it: give one in `addresses` under [peers]."
            raise PeerError(Problem.UNREACHABLE, text)
        reply = ask(url, client, seconds=seconds, access=self._access)
        if other := _mismatch(reply, self.place):
            text = f"At {url} {other}, not the one of {self.place.called}. Check `addresses` under [peers]."
            raise PeerError(Problem.FOREIGN, text)
        return reply

    def _failed(self, error: PeerError) -> None:
        self.pacing.failed()
        now = self._clock.monotonic()
        if not (error.silent or error.refused):  # another host answered, or the fault is here
            self._silent_since, self._tries, self._refuses = None, 0, False
            self._update(error.problem, str(error))
            return
        if self._silent_since is None or self._refuses is not error.refused:
            self._silent_since, self._tries, self._refuses = now, 0, error.refused
        self._tries += 1
        if now - self._silent_since > FORGET_SECONDS:
            self._answered = None
        self._update(None if self.has_answered else Problem.ABSENT, str(error))

    def _update(self, problem: Problem | None, detail: str) -> None:
        now, mono = self._clock.time(), self._clock.monotonic()
        value = None
        if self._answered is not None:
            since = None if self._silent_since is None else now - (mono - self._silent_since)
            answered = now - (mono - self._answered)
            value = Peer(answered, self._verdict, since, self._tries, self._refuses, self._boot_id)
        self.silent = self.has_answered and self._tries >= _OUTAGE_TRIES and not self._refuses
        self.answer = Answer(value, None if value is None else now, problem, detail, now)


def _mismatch(reply: PeerReply, place: _Place) -> str:
    """Who answers, if it is not the tpuwatch of this worker."""
    if not reply.node:
        return "answers a tpuwatch that does not know of which node it is"
    mine = (place.project, place.zone, place.node)
    theirs = (reply.project or place.project, reply.zone or place.zone, reply.node)
    if mine != theirs:
        return f"the tpuwatch of {'/'.join(theirs)} answers"
    return "" if reply.worker in ("", str(place.worker)) else f"the tpuwatch of worker {reply.worker} answers"


def _comparable(answer: Answer[Peer]) -> tuple[object, ...]:
    """Return the parts of an answer whose change matters; its age does not."""
    peer = answer.value
    verdict = peer.verdict if peer else None
    judged = None
    if verdict is not None:
        judged = (verdict.verdict, verdict.action, verdict.signals, verdict.sources, verdict.kind, verdict.failed)
    silence = (peer.silent_since is None, min(peer.tries, 5), peer.refuses) if peer else None
    return judged, silence, answer.problem, peer.boot_id if peer else ""


def _suspect(answer: Answer[Peer], outage: str) -> Answer[Peer]:
    return Answer(answer.value, answer.at, Problem.UNREACHABLE, outage, answer.tried)


def _outage(peers: list[_Peer]) -> str:
    """Return a sentence if many have fallen silent at once, else ""."""
    answered = [peer for peer in peers if peer.has_answered]
    all_of = Counter(peer.place.zone for peer in answered)
    silent = Counter(peer.place.zone for peer in answered if peer.silent)
    groups = [(f"in zone {zone}", silent[zone], all_of[zone]) for zone in sorted(silent)]
    for where, count, many in [("that are watched", silent.total(), all_of.total()), *groups]:
        if count >= OUTAGE_COUNT and count >= OUTAGE_SHARE * many:
            return (
                f"{count} of the {many} nodes {where} whose tpuwatch has answered are silent at once: this machine's "
                "own network is the suspect, so the silence of none of them counts."
            )
    return ""


def _ring_outage(peers: list[_Peer]) -> str:
    """Return a sentence if all workers of the own slice that have answered have fallen silent, several of them."""
    answered = [peer for peer in peers if peer.has_answered]
    if len(answered) < OUTAGE_COUNT or not all(peer.silent for peer in answered):
        return ""
    return (
        f"All {len(answered)} workers of this slice whose tpuwatch has answered are silent at once: this machine's own "
        "network is the suspect, so the silence of none of them counts."
    )


def start(sources: SignalSources) -> None:
    """Add the source that asks the tpuwatch of other nodes, as soon as the cloud names some."""
    config, metrics = sources.config.peers, sources.metrics.peers
    sources.peers = source = PeersSignal(config, clock=sources.clock, rng=sources.rng)

    def on_answer(answer: Answer[tuple[Peer, ...]]) -> None:
        sources.post(Signal.PEER, answer.counted(), peers=source.answers)
        metrics.set_answers({label: workers[0] for label, workers in source.answers.items() if 0 in workers})

    calls = 2 * config.timeout_seconds
    sources.add("peer", source, config.poll_seconds, on_answer, after="cloud", calls=calls)
