"""The other nodes' tpuwatch as a signal: what is remembered of each, by a clock of the tests."""

from __future__ import annotations

import random
import threading
from dataclasses import replace
from typing import Any

import pytest

from tests.standins.peer_server import status
from tpuwatch.config.schema import PeersConfig
from tpuwatch.core.clock import ManualClock
from tpuwatch.model.answers import Answer, Problem
from tpuwatch.model.causes import Cause
from tpuwatch.model.labels import split_label
from tpuwatch.model.signals import CloudNode, Identity, Known, Peer, PeerVerdict, Snapshot
from tpuwatch.model.slices import PeerState, peer_state
from tpuwatch.model.verdict import Action, Confidence, Verdict
from tpuwatch.signals import peer_calls, peers
from tpuwatch.signals.peer_calls import PeerError, PeerReply
from tpuwatch.signals.peers import AT_ONCE, FORGET_SECONDS, RING, PeersSignal

NOW = 1_790_000_000.0
WORD = PeerVerdict(Verdict.HEALTHY, Action.NONE, Confidence.HIGH, "So it is.", frozenset(), 1.0)
SILENT = PeerError(Problem.TIMEOUT, "It did not answer within 5 s.", silent=True)
REFUSED = PeerError(Problem.UNREACHABLE, "It refuses the connection.", refused=True)
FOREIGN = PeerError(Problem.FOREIGN, "It is no tpuwatch.")


def node(number: int = 1, state: str = "READY", **more: Any) -> CloudNode:
    usual: dict[str, Any] = {"addresses": (f"10.0.0.{number}",), "created": NOW - 86_400}
    return CloudNode("p", "z", f"train-{number}", state, "HEALTHY", **{**usual, **more})


def here(own: str, worker: str = "", **more: Any) -> Snapshot:
    """This machine, of the node with the label."""
    zone, name = split_label(own)
    known = {"project": "p", "zone": zone, "node": name, "worker": worker}
    return Snapshot(identity=Identity(**{key: Known(value, "metadata") for key, value in known.items()}), **more)


class Fleet:
    """Nodes that are watched, and what comes of a question to each: None is a good answer."""

    def __init__(self, count: int = 1, **config: Any) -> None:
        self.clock = ManualClock(NOW)
        self.nodes = {one.name: one for one in map(node, range(1, count + 1))}
        self.outcomes: dict[str, PeerError | PeerReply | Exception | None] = {}
        self.outcome: PeerError | PeerReply | None = None  # of all others
        self.asked: list[str] = []
        self.lock = threading.Lock()
        section = PeersConfig.model_validate({"enabled": True, **config})
        self.signal = PeersSignal(section, clock=self.clock, rng=random.Random(5))
        self.follow()

    def follow(self, own: str = "", **more: Any) -> bool:
        answers = {name: Answer(one, NOW, None, "", NOW) for name, one in self.nodes.items()}
        return self.signal.follow(answers, here(own, **more))

    def call(self, url: str, *_: Any, **__: Any) -> PeerReply:
        with self.lock:
            self.asked.append(url)
        name = next((one.name for one in self.nodes.values() if f"//{one.address}:" in url), "train-1")
        name = name if self.nodes else "train-9"
        outcome = self.outcomes.get(name, self.outcome)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome or PeerReply("p", "z", name, WORD)

    def ask(self, seconds: float = 30.0) -> Answer[tuple[Peer, ...]]:
        """Let time pass, and ask who is due."""
        self.clock.advance(seconds)
        return self.signal.ask()

    def answer(self, name: str = "train-1") -> Answer[Peer]:
        return self.signal.answers[name][0]

    def peer(self, name: str = "train-1") -> Peer:
        peer = self.answer(name).value
        assert peer is not None
        return peer

    def fall_silent(self, *names: str, outcome: PeerError = SILENT) -> None:
        self.outcomes.update(dict.fromkeys(names, outcome))


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Any:
    made: list[Fleet] = []

    def new(count: int = 1, **config: Any) -> Fleet:
        made.append(Fleet(count, **config))
        monkeypatch.setattr(peers, "ask", made[-1].call)
        return made[-1]

    yield new
    for fleet in made:
        fleet.signal.close()


def test_each_is_asked_at_its_address_and_its_verdict_is_reported(make: Any) -> None:
    given = {"z/train-2": "https://proxy.example:8443/two", "y/train-1": "https://elsewhere.example"}
    fleet = make(2, addresses=given, port=9999)
    summary = fleet.ask()
    assert set(fleet.asked) == {"http://10.0.0.1:9999", "https://proxy.example:8443/two"}
    assert summary.problem is None
    assert fleet.answer() == Answer(Peer(NOW + 30, WORD), NOW + 30, None, "", NOW + 30)
    assert fleet.answer("train-2").problem is Problem.FOREIGN  # there answers train-1


@pytest.mark.parametrize(("own", "address"), [("z/me", "http://10.0.0.9:1"), ("y/me", "http://10.0.0.1:9478")])
def test_a_name_without_a_zone_is_of_the_zone_of_this_machine(make: Any, own: str, address: str) -> None:
    fleet = make(1, addresses={"train-1": "http://10.0.0.9:1"})
    fleet.follow(own)
    fleet.ask()
    assert fleet.asked == [address]


def test_an_ipv6_address_stands_in_brackets_and_without_any_nothing_is_asked(make: Any) -> None:
    fleet = make(2)
    fleet.nodes = {"a": node(1, addresses=("fd00::7",)), "b": node(2, addresses=())}
    for _ in range(3):
        fleet.follow()
    fleet.ask()
    assert fleet.asked == ["http://[fd00::7]:9478"]
    assert fleet.answer("b").problem is Problem.UNREACHABLE
    assert "`addresses` under [peers]" in fleet.answer("b").detail


def test_the_own_node_and_those_that_are_not_up_are_not_asked(make: Any) -> None:
    fleet = make(5)
    for number, state in ((2, "STOPPED"), (3, "PREEMPTED"), (4, "UNKNOWN")):
        fleet.nodes[f"train-{number}"] = node(number, state)
    fleet.follow("train-1")
    fleet.ask()
    assert fleet.signal.answers.keys() == {"train-4", "train-5"}


def test_an_error_of_tpuwatch_itself_is_logged_once_and_not_at_each_poll(
    make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    fleet = make(2)
    fleet.outcomes["train-2"] = RuntimeError("not foreseen")
    for _ in range(5):
        fleet.ask(600.0)
    assert [line for line in caplog.messages if "could not be asked" in line] == [
        "The tpuwatch of train-2 could not be asked."
    ]
    fleet.outcomes.clear()
    fleet.ask(600.0)
    fleet.outcomes["train-2"] = RuntimeError("again")
    fleet.ask(600.0)
    assert caplog.text.count("The tpuwatch of train-2 could not be asked.") == 2


def test_one_that_falls_silent_is_reported_with_the_time_and_the_tries(make: Any) -> None:
    fleet = make()
    fleet.ask()
    fleet.fall_silent("train-1")
    for _ in range(5):
        answer = fleet.ask()
    assert answer.problem is None  # its silence is in the node's own answer
    peer = fleet.peer()
    assert (peer.answered, peer.silent_since, peer.tries, peer.refuses) == (NOW + 30, NOW + 60, 5, False)
    assert peer.verdict == WORD
    assert (fleet.answer().problem, fleet.answer().at) == (None, NOW + 180)
    fleet.outcomes.clear()
    fleet.ask()
    assert fleet.peer() == Peer(NOW + 210, WORD)


def test_a_clock_that_is_set_does_not_make_a_silence_longer(make: Any) -> None:
    fleet = make()
    fleet.ask()
    fleet.fall_silent("train-1")
    fleet.ask()
    fleet.clock.wall += 100_000.0
    fleet.ask(5.0)
    peer = fleet.peer()
    assert peer.silent_since is not None
    assert fleet.clock.time() - peer.silent_since == pytest.approx(5.0)


def test_one_that_never_answered_is_absent_however_it_fails(make: Any) -> None:
    fleet = make(3)
    fleet.outcomes = {"train-1": SILENT, "train-2": REFUSED, "train-3": FOREIGN}
    for _ in range(9):
        summary = fleet.ask()
    assert [fleet.answer(name).problem for name in fleet.nodes] == [Problem.ABSENT, Problem.ABSENT, Problem.FOREIGN]
    assert [fleet.answer(name).value for name in fleet.nodes] == [None, None, None]
    assert summary.problem is Problem.ABSENT
    assert "`listen` under [http]" in summary.detail


def test_a_refusal_is_no_silence_and_a_silence_after_it_begins_again(make: Any) -> None:
    fleet = make()
    fleet.ask()
    fleet.fall_silent("train-1", outcome=REFUSED)
    for _ in range(4):
        fleet.ask()
    assert fleet.peer().refuses
    fleet.fall_silent("train-1")
    fleet.ask()
    assert (fleet.peer().refuses, fleet.peer().tries, fleet.peer().silent_since) == (False, 1, fleet.clock.time())


@pytest.mark.parametrize("outcome", [FOREIGN, ZeroDivisionError("unexpected"), PeerReply("p", "z", "other", WORD)])
def test_what_is_no_silence_ends_one(make: Any, outcome: Any) -> None:
    fleet = make()
    fleet.ask()
    fleet.fall_silent("train-1")
    fleet.ask()
    fleet.outcomes["train-1"] = outcome
    fleet.ask()
    assert fleet.answer().problem in (Problem.FOREIGN, Problem.INTERNAL)
    assert fleet.peer().silent_since is None


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (PeerReply("p", "z", "other", WORD), "the tpuwatch of p/z/other answers"),
        (PeerReply("p", "y", "train-1", WORD), "the tpuwatch of p/y/train-1 answers"),
        (PeerReply("q", "z", "train-1", WORD), "the tpuwatch of q/z/train-1 answers"),
        (PeerReply("", "", "", WORD), "does not know of which node it is"),
    ],
)
def test_the_answer_of_another_nodes_is_reported_and_does_not_count(make: Any, reply: PeerReply, words: str) -> None:
    fleet = make()
    fleet.outcomes["train-1"] = reply
    fleet.ask()
    assert (fleet.answer().value, fleet.answer().problem) == (None, Problem.FOREIGN)
    assert words in fleet.answer().detail
    fleet.outcomes["train-1"] = PeerReply("", "", "train-1", None)
    fleet.ask()
    assert fleet.peer().verdict is None


@pytest.mark.parametrize("between", ["STOPPED", "STARTING", "REPAIRING", "PREEMPTED"])
def test_what_answered_before_the_node_came_up_counts_no_more(make: Any, between: str) -> None:
    fleet = make()
    fleet.ask()
    fleet.fall_silent("train-1")
    for state in (between, "READY"):
        fleet.nodes["train-1"] = node(state=state)
        fleet.follow()
    fleet.ask()
    assert (fleet.answer().problem, fleet.answer().value) == (Problem.ABSENT, None)


def test_a_node_of_the_same_name_that_was_created_again_is_another(make: Any) -> None:
    fleet = make()
    fleet.ask()
    fleet.nodes["train-1"] = node(created=NOW)
    fleet.fall_silent("train-1")
    fleet.follow()
    fleet.ask()
    assert fleet.answer().value is None


@pytest.mark.parametrize("shown", [False, True], ids=["not listed", "called gone"])
def test_a_node_that_a_list_lacks_once_is_not_forgotten(make: Any, shown: bool) -> None:
    fleet = make()
    fleet.ask()
    known = fleet.nodes.pop("train-1")
    lost = {"train-1": Answer(known, NOW, Problem.GONE, "It is not listed.", NOW)} if shown else {}
    for _ in range(2):
        fleet.signal.follow(lost, here(""))
        fleet.ask()
        assert fleet.peer().verdict is not None
    fleet.signal.follow(lost, here(""))
    fleet.ask()
    assert "train-1" not in fleet.signal.answers
    fleet.nodes["train-1"] = known
    assert fleet.follow()


def test_health_and_an_unknown_state_are_no_boot(make: Any) -> None:
    fleet = make()
    fleet.ask()
    fleet.nodes["train-1"] = replace(node(state="UNKNOWN"), health="TIMEOUT")
    assert not fleet.follow()
    fleet.fall_silent("train-1")
    fleet.ask()
    assert fleet.peer().silent_since is not None


def test_one_that_has_been_silent_for_a_day_is_forgotten(make: Any) -> None:
    fleet = make()
    fleet.ask()
    fleet.fall_silent("train-1")
    fleet.ask()
    fleet.ask(FORGET_SECONDS + 1)
    assert (fleet.answer().value, fleet.answer().problem) == (None, Problem.ABSENT)


# -- many at once


@pytest.mark.parametrize(
    ("count", "silent", "suspect"),
    [(1, 1, False), (2, 1, False), (2, 2, True), (8, 1, False), (8, 2, True), (9, 2, False), (40, 9, False)],
)
def test_where_many_fall_silent_at_once_none_counts(make: Any, count: int, silent: int, suspect: bool) -> None:
    fleet = make(count)
    fleet.ask()
    names = list(fleet.nodes)[:silent]
    fleet.fall_silent(*names)
    for _ in range(4):
        summary = fleet.ask(60.0)
    counts = f"{silent} of the {count} nodes"
    assert (summary.problem is Problem.UNREACHABLE) == suspect == (counts in summary.detail)
    for name in names:
        assert (fleet.answer(name).problem is Problem.UNREACHABLE) == suspect
        assert not suspect or counts in fleet.answer(name).detail
    assert all(fleet.answer(name).problem is None for name in fleet.nodes.keys() - names)
    fleet.outcomes.clear()
    assert fleet.ask(60.0).problem is None


def test_a_zone_that_falls_silent_is_reported_though_there_are_many_others(make: Any) -> None:
    fleet = make(60)
    for number in (1, 2):
        fleet.nodes[f"train-{number}"] = replace(node(number), zone="y")
    fleet.follow()
    for number in (1, 2):
        fleet.outcomes[f"train-{number}"] = PeerReply("p", "y", f"train-{number}", WORD)
    fleet.ask()
    fleet.fall_silent("train-1", "train-2")
    for _ in range(4):
        summary = fleet.ask(60.0)
    assert "2 of the 2 nodes in zone y" in summary.detail


def test_those_that_refuse_are_not_silent(make: Any) -> None:
    fleet = make(4)
    fleet.ask()
    fleet.fall_silent(*fleet.nodes, outcome=REFUSED)
    for _ in range(4):
        summary = fleet.ask(60.0)
    assert summary.problem is None


# -- pace


def test_those_that_fail_do_not_hold_up_the_others(make: Any) -> None:
    fleet = make(200)
    fleet.ask()
    dead = [f"train-{number}" for number in range(1, 101)]
    fleet.fall_silent(*dead)
    fleet.ask()
    fleet.asked.clear()
    fleet.ask(60.0)
    failed = [url for url in fleet.asked if any(url == f"http://10.0.0.{number}:9478" for number in range(1, 101))]
    assert len(failed) == AT_ONCE
    assert len(fleet.asked) == AT_ONCE + 100
    fleet.ask(0.0)
    assert len(fleet.asked) == 2 * AT_ONCE + 100  # the next of them, the longest unasked first
    assert len(set(fleet.asked)) == len(fleet.asked)


def test_a_turn_ends_though_many_hang(make: Any) -> None:
    fleet = make(100)
    fleet.fall_silent(*fleet.nodes)
    call = fleet.call

    def hang(*args: Any, **more: Any) -> PeerReply:
        with fleet.lock:
            fleet.clock.advance(5.0)
        return call(*args, **more)

    peers.ask = hang  # type: ignore[assignment] # the fixture puts it back
    fleet.ask()
    assert len(fleet.asked) <= 2 * AT_ONCE
    assert fleet.signal.due_in <= 2.0


def test_no_more_are_asked_at_once_than_may_be(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = make(3 * AT_ONCE)
    together = threading.Barrier(AT_ONCE)
    under_way, most = 0, 0

    def call(url: str, *_: Any, **__: Any) -> PeerReply:
        nonlocal under_way, most
        with fleet.lock:
            under_way += 1
            most = max(most, under_way)
        together.wait(30)
        with fleet.lock:
            under_way -= 1
        return fleet.call(url)

    monkeypatch.setattr(peers, "ask", call)
    fleet.ask()
    assert most == AT_ONCE
    assert len(fleet.asked) == 3 * AT_ONCE


def test_answers_are_replaced_on_a_change_and_periodically(make: Any) -> None:
    fleet = make(2)
    fleet.ask()
    first = fleet.signal.answers
    fleet.ask(2.0)
    assert fleet.signal.answers is first
    fleet.ask(30.0)
    assert fleet.signal.answers is not first
    second = fleet.signal.answers
    fleet.fall_silent("train-1")
    fleet.ask(30.0)
    assert fleet.signal.answers is not second


def test_without_other_nodes_there_is_none_to_ask(make: Any) -> None:
    fleet = make(0)
    summary = fleet.ask()
    assert (summary.problem, summary.value) == (Problem.ABSENT, ())
    assert fleet.signal.due_in == 30.0


def test_one_is_asked_anew_without_a_mark_on_what_is_remembered_of_it(make: Any) -> None:
    fleet = make()
    fleet.ask()
    before = fleet.peer()
    fleet.clock.advance(1)
    fresh = fleet.signal.ask_now("train-1")
    assert (fresh.answered, fresh.verdict) == (fleet.clock.time(), WORD)
    fleet.fall_silent("train-1")
    assert fleet.signal.ask_now("train-1").silent_since == fleet.clock.time()
    fleet.fall_silent("train-1", outcome=REFUSED)
    assert fleet.signal.ask_now("train-1").refuses
    fleet.fall_silent("train-1", outcome=FOREIGN)
    assert fleet.signal.ask_now("train-1") is None
    assert fleet.signal.ask_now("train-7") is None
    assert fleet.peer() == before
    fleet.signal.close()
    assert fleet.signal.ask_now("train-1") is None


# -- the workers of a slice


SLICE = tuple(f"10.1.0.{number}" for number in range(40))


def asked_by(fleet: Fleet, worker: str, endpoints: tuple[str, ...] = SLICE, own: str = "z/train-9") -> list[int]:
    """The numbers of the workers that this one asks."""
    fleet.signal.follow({}, here(own, worker, endpoints=endpoints))
    fleet.ask()
    return sorted(fleet.signal.answers.get(own, {}))


def test_every_worker_of_a_watched_node_is_asked(make: Any) -> None:
    fleet = make(1)
    fleet.nodes["train-1"] = node(addresses=SLICE[:4])
    fleet.follow()
    fleet.ask()
    assert sorted(fleet.asked) == [f"http://10.1.0.{number}:9478" for number in range(4)]
    assert list(fleet.signal.answers["train-1"]) == [0, 1, 2, 3]


def test_a_worker_asks_those_that_come_next_and_is_asked_by_as_many(make: Any) -> None:
    fleet = make(0)
    assert asked_by(fleet, "38") == [*range(15), 39]
    counted: dict[int, int] = {}
    for worker in range(len(SLICE)):
        for number in asked_by(make(0), str(worker)):
            counted[number] = counted.get(number, 0) + 1
    assert counted == dict.fromkeys(range(len(SLICE)), RING)
    assert asked_by(make(0), "1", SLICE[:4]) == [0, 2, 3]
    assert asked_by(make(0), "0", SLICE[:1]) == []


@pytest.mark.parametrize(
    ("worker", "own"), [("", "z/train-9"), ("40", "z/train-9"), ("1", "z/")], ids=["no number", "too high", "no node"]
)
def test_without_a_place_in_a_slice_none_of_it_is_asked(make: Any, worker: str, own: str) -> None:
    assert asked_by(make(0), worker, own=own) == []


def test_where_the_metadata_server_gives_no_addresses_the_clouds_count(make: Any) -> None:
    fleet = make(1)
    fleet.nodes["train-1"] = node(addresses=SLICE[:3])
    fleet.follow("train-1", worker="2")
    fleet.ask()
    assert sorted(fleet.asked) == ["http://10.1.0.0:9478", "http://10.1.0.1:9478"]


def test_the_own_slice_is_asked_half_as_often_and_its_silence_is_seen_within_two_minutes(make: Any) -> None:
    fleet = make(0)
    asked_by(fleet, "0", SLICE[:4])
    fleet.asked.clear()
    for _ in range(60):
        fleet.ask(10.0)
    assert 30 <= len(fleet.asked) <= 34  # three workers in ten minutes
    before = fleet.clock.time()
    fleet.outcome = SILENT
    while peer_state(fleet.signal.answers["z/train-9"][1]) is not PeerState.SILENT:
        fleet.ask(2.0)
    assert fleet.clock.time() - before < 120


def test_another_worker_at_the_address_is_no_answer(make: Any) -> None:
    fleet = make(0)
    fleet.outcome = PeerReply("p", "z", "train-9", WORD, worker="2")
    asked_by(fleet, "0", SLICE[:4])
    answers = fleet.signal.answers["z/train-9"]
    assert answers[2].problem is None
    assert (answers[1].problem, answers[3].problem) == (Problem.FOREIGN, Problem.FOREIGN)
    assert "worker 2 answers" in answers[1].detail


def test_where_all_workers_of_the_own_slice_are_silent_none_counts(make: Any) -> None:
    fleet = make(0)
    asked_by(fleet, "0", SLICE[:4])
    fleet.outcome = SILENT
    summary = fleet.ask(120.0)
    for _ in range(20):
        summary = fleet.ask(60.0)
    assert summary.problem is Problem.UNREACHABLE
    assert {peer_state(one) for one in fleet.signal.answers["z/train-9"].values()} == {PeerState.UNCLEAR}


def test_a_list_that_lacks_an_address_once_forgets_no_worker(make: Any) -> None:
    fleet = make(1)
    fleet.nodes["train-1"] = node(addresses=SLICE[:4])
    fleet.follow()
    fleet.ask()
    fleet.nodes["train-1"] = node(addresses=SLICE[:3])
    for left in (4, 4, 3):
        fleet.follow()
        fleet.ask()
        assert len(fleet.signal.answers["train-1"]) == left


def test_the_first_failure_that_a_worker_tells_of_is_taken_with_its_age() -> None:
    document = status(failure={"cause": "core_halted", "at": "2026-11-20T13:40:00Z", "at_epoch": NOW - 100.0})
    document["now_epoch"] = NOW
    word = peer_calls.read_reply(document, "http://10.0.0.1:9478").verdict
    assert word is not None
    assert (word.failed, word.failed_age) == (Cause.CORE_HALTED, 100.0)
    newer = status(failure={"cause": "of a newer version", "at": "2026-11-20T13:40:00Z", "at_epoch": NOW - 100.0})
    word = peer_calls.read_reply(newer, "http://10.0.0.1:9478").verdict
    assert word is not None
    assert word.failed is None
