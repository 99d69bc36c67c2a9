"""Checks the state machine of restarts by exploring what two drivers, the ledger and the service may do.

The real `advance` and `answered` run against a model of the service (`world`) and of the ledger: each driver takes the
lease, looks (at what is, or at what was a tick ago), decides, writes, calls, and writes the answer; between any two of
these the other driver, the service, people and time may move, and it may die. What must never be is looked for in each
state; and from each state, if nothing more goes wrong, the restart must come to a good end. What is seen of the node
beside the API may turn at any step: nothing that a daemon wants is taken down while it does not hold.

A driver may find at any write that it can write no more, whether or not that write was stored; any later write of it
may succeed again, or none does. Its clock may have jumped whenever a driver takes a record over, or while it is at
it. Both are looked at only where they can be noticed, at a write and at a look, and not at each step in between.

    python -m tests.proof.model.checker --depth 14             every fault once, in any combination, to a depth
    python -m tests.proof.model.checker --pairs --hosts 2      each two faults, as deep as there is anything
    python -m tests.proof.model.checker --pairs --of outages   a ledger that cannot be written, and each other fault
"""

from __future__ import annotations

import argparse
import gc
import itertools
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple, Protocol

from tests.proof.model import world as service
from tests.proof.model.world import Budget, World
from tpuwatch.model.restart import TOUCHED, Phase, RestartRecord, Target
from tpuwatch.model.verdict import Action
from tpuwatch.restart.workflow import workflow
from tpuwatch.restart.workflow.types import (
    ApiCall,
    CallAnswer,
    NodeObservation,
    PhaseLimits,
    PresentEvidence,
    Standing,
    Step,
)

NOW = 1000.0  # each state is moved to this time: only differences matter
MEMORY = 8  # ticks: longer ago is all the same, for all limits are shorter; and so is later in the future
JUMP = 2 * MEMORY  # ticks by which a clock jumps: an hour or 90 days are longer than all limits, too
LEASE = 2  # ticks; a call is made within the first and is carried out within the second, or never
LIMITS = PhaseLimits(
    stop_seconds=3,
    start_seconds=3,
    settle_seconds=1,
    verify_seconds=3,
    wait_seconds=5,
    poll_seconds=1,
    retry_seconds=1,
    max_retry_seconds=1,
    stockout_alert_after=2,
    call_seconds=1,
    stale_seconds=1,
)
GOOD_STEPS = 300  # within so many the fault-free continuation must end

Advance = Callable[[RestartRecord, NodeObservation, float, PhaseLimits, PresentEvidence], Step]
Answered = Callable[[RestartRecord, ApiCall, CallAnswer, float, PhaseLimits], RestartRecord]
MayCall = Callable[[RestartRecord, ApiCall, NodeObservation, PresentEvidence], bool]
MayCallUnrecorded = Callable[[ApiCall], bool]
GoesOn = Callable[[RestartRecord, RestartRecord], bool]


class Resumed(Protocol):
    """How a driver begins with a record that it takes over."""

    def __call__(
        self, record: RestartRecord, now: float, limits: PhaseLimits, *, by_operator: bool
    ) -> RestartRecord: ...


PRESENT = {standing: PresentEvidence(standing, "So it is.") for standing in Standing}
ILL = {standing: replace(one, ill=True) for standing, one in PRESENT.items()}  # the API had called it ill


class Kept(RestartRecord):
    """A record that knows its hash: it is asked for it some hundred times."""

    __slots__ = ("_hash",)

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            object.__setattr__(self, "_hash", super().__hash__())
            return self._hash


class Actor(NamedTuple):
    """A driver. It waits for the lease, holds it, has decided, is about to call, or has an answer to write."""

    at: str = "idle"  # idle, held, moved, sending, got
    record: RestartRecord | None = None  # decided, not written
    call: ApiCall | None = None
    answer: CallAnswer | None = None
    cut: bool = False  # its latest write failed
    memory: RestartRecord | None = None  # what it drives on unrecorded
    stale: bool = False  # which another driver has written meanwhile
    steady: RestartRecord | None = None  # what it would go by if its clock had not jumped


class State(NamedTuple):
    world: World
    record: RestartRecord
    actors: tuple[Actor, Actor] = (Actor(), Actor())
    owner: int = -1  # who has the lease
    dead: bool = False  # its owner has died
    age: int = 0  # ticks since the record was written


class Violation(Exception):  # noqa: N818 # it is what is looked for
    """What must never be, with how it came about."""


@dataclass
class Checker:
    """Breadth first over all that may happen, to a depth."""

    budget: Budget = field(default_factory=Budget)
    hosts: int = 1
    advance: Advance = workflow.advance
    answered: Answered = workflow.answered
    may_call: MayCall = workflow.may_call
    may_call_unrecorded: MayCallUnrecorded = workflow.may_call_unrecorded
    goes_on_unrecorded: GoesOn = workflow.goes_on_unrecorded
    resumed: Resumed = workflow.resumed
    is_steady: bool = True  # a driver at work counts time by a clock that does not jump
    limits: PhaseLimits = LIMITS
    watched: bool = False  # whether a daemon wants it, and no operator
    futures: bool = True  # whether a good end is looked for from each state
    good: set[State] = field(default_factory=set)
    taken: dict[tuple[RestartRecord, int], RestartRecord] = field(default_factory=dict)
    good_unrecorded: set[State] = field(default_factory=set)
    moves: dict[tuple[RestartRecord, service.View, bool, Standing, int], Step] = field(default_factory=dict)
    came: dict[State, tuple[State | None, str]] = field(default_factory=dict)
    depth: int = 0  # that was reached
    whole: bool = False  # nothing is left to be explored

    def run(self, depth: int) -> int:
        """Explore to this depth. Returns the number of states. Raises Violation."""
        view = service.View("READY", (), ill=self.watched)
        first = canonical(State(World(view, view, budget=self.budget), _first_record(watched=self.watched)))
        self.came, front = {first: (None, "begin")}, [first]
        gc.disable()  # nothing here goes in circles, and it would look for that among all states, again and again
        try:
            while front and self.depth < depth:
                self.depth += 1
                front = [after for state in front for after in self._new(state)]
        finally:
            gc.enable()
        self.whole = not front
        return len(self.came)

    def _new(self, state: State) -> Iterator[State]:
        for label, raw in self.steps(state):
            after = canonical(raw)
            if after not in self.came:
                self.came[after] = (state, label)
                self._check(after)
                yield after

    # What may happen

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        for who in (0, 1):
            for label, after in self._driver(state, who):
                yield f"driver {who}: {label}", after
        people = lambda world: service.people(world, self.hosts)  # noqa: E731
        for source in (service.operations, service.late, people, service.turns, service.staleness):
            for label, world in source(state.world):
                yield label, state._replace(world=world)
        yield "tick", _ticked(state)

    def _driver(self, state: State, who: int) -> Iterator[tuple[str, State]]:
        actor = state.actors[who]
        if actor.at == "idle":
            if state.record.open and (state.owner < 0 or state.dead or state.age >= LEASE):
                yield from self._takes(state, who)
            return
        if (worse := service.spend(state.world, "crashes")) is not None:
            dead = state.dead or state.owner == who
            yield "dies", _put(state._replace(world=worse, dead=dead), who, Actor(cut=actor.cut))
        if actor.at == "held":
            yield from self._looks(state, who)
        elif actor.at == "moved":
            yield from self._writes(state, who)
        elif actor.at == "sending":
            yield from self._sent(state, who)
        else:
            yield from self._answered(state, who)

    def _takes(self, state: State, who: int) -> Iterator[tuple[str, State]]:
        actor = state.actors[who]
        record = self._resumed(state.record)
        yield from _written("takes the lease", _put(state, who, Actor("moved", record, cut=actor.cut)), who, self)
        if actor.cut:
            return
        for how, jumped in _jumps(state):
            after = Actor("moved", self._resumed(state.record, jumped.world.ahead), steady=record)
            yield f"takes the lease by a clock {how}", _recorded(_put(jumped, who, after), who)

    def _resumed(self, record: RestartRecord, ahead: int = 0) -> RestartRecord:
        """As a driver takes it over; `ahead`: how its clock has jumped."""
        taken = self.taken.get((record, ahead))
        if taken is None:
            after = self.resumed(record, NOW + ahead * JUMP, self.limits, by_operator=False)
            taken = self.taken[record, ahead] = _moved(after, ahead * JUMP)
        return taken

    def _looks(self, state: State, who: int) -> Iterator[tuple[str, State]]:
        world, actor = state.world, state.actors[who]
        if actor.memory is not None:  # it tries that at each turn
            again = _put(state, who, actor._replace(at="moved", record=actor.memory))
            yield next(_written("writes", again, who, self))
        shown = service.shown(world)
        yield "looks", self._looked(state, who, shown)
        if world.frozen is None and world.old != world.view:
            yield "looks at the past", self._looked(state, who, world.old)
        if world.view.ops and (worse := service.spend(world, "blinds")) is not None:
            blind = self._looked(state._replace(world=worse), who, shown, blind=True)
            yield "looks and sees no operations", blind
        if actor.memory is None and not self.is_steady:
            for how, jumped in _jumps(state):
                after = _put(jumped, who, actor._replace(steady=state.record))
                yield f"looks by a clock {how}", self._looked(after, who, shown)

    def _looked(self, state: State, who: int, view: service.View, *, blind: bool = False) -> State:
        actor = state.actors[who]
        record = actor.memory or state.record
        if record.phase is Phase.VERIFYING:  # that it may stay ill is no part of the model
            view = view._replace(ill=False)
        move = self._move(record, view, state.world, blind=blind)
        if actor.steady is not None:
            steady = self._move(actor.steady, view, state.world._replace(ahead=0), blind=blind)
            waits = steady.call is None and steady.record.phase is actor.steady.phase
            if waits and move.call not in (None, ApiCall.START):  # a start too many is refused
                broken = f"a jump of the clock ends a wait: {move.call.value}"
                state = state._replace(world=state.world._replace(broken=broken))
            alike = (steady.call, steady.record.phase) == (move.call, move.record.phase)
            if actor.steady != (after := steady.record if alike else None):
                actor = actor._replace(steady=after)
                state = _put(state, who, actor)
        if move.call is None and move.record == record:
            return state  # it waits
        if move.call is not None and view.state not in (_STARTED_ON if move.call is ApiCall.START else ("READY",)):
            state = state._replace(world=state.world._replace(broken=f"{move.call.value} on {view.state}"))
        return _put(state, who, actor._replace(at="moved", record=move.record, call=move.call))

    def _move(self, record: RestartRecord, view: service.View, world: World, *, blind: bool) -> Step:
        known = (record, view, blind, world.standing, world.ahead)
        move = self.moves.get(known)
        if move is None:
            sight = service.sight(view, NOW, self.hosts, blind=blind, ahead=world.ahead)
            move = self.advance(record, sight, NOW, self.limits, self._present(world))
            move = self.moves[known] = replace(move, record=_moved(move.record, 0))
        return move

    def _present(self, world: World) -> PresentEvidence:
        return (ILL if self.watched else PRESENT)[world.standing]

    def _writes(self, state: State, who: int) -> Iterator[tuple[str, State]]:
        yield from _written("writes", state, who, self)

    def _sent(self, state: State, who: int) -> Iterator[tuple[str, State]]:
        actor = state.actors[who]
        call = actor.call
        assert call is not None
        standing, record = state.world.standing, actor.memory or state.record
        last_shown = service.shown(state.world)
        last_look = service.sight(last_shown, NOW, self.hosts)
        if not self.may_call(record, call, last_look, self._present(state.world)):
            yield f"puts off {call.value}", _put(state, who, actor._replace(at="held", call=None))
            return
        if actor.memory is not None and not self.may_call_unrecorded(call):
            yield f"gives up before {call.value}", _put(state, who, Actor(cut=actor.cut))
            return
        if call is not ApiCall.START and actor.memory is not None:
            broken = f"a {call.value}, and the ledger cannot be written"
            state = state._replace(world=state.world._replace(broken=broken))
        if call is not ApiCall.START and record.signals and standing is not Standing.HOLDS:
            broken = f"a {call.value}, and the evidence: {standing.value}"
            state = state._replace(world=state.world._replace(broken=broken))
        view = state.world.view
        if call is not ApiCall.START and record.signals and view == service.View("READY", view.ops) == last_shown:
            broken = f"a {call.value} of a node that the API calls well"
            state = state._replace(world=state.world._replace(broken=broken))

        def got(world: World, answer: CallAnswer) -> State:
            return _put(state._replace(world=world), who, actor._replace(at="got", answer=answer))

        yield f"calls {call.value}", got(*service.handle(state.world, call))
        if (worse := service.spend(state.world, "refusals")) is not None:
            for code in ("RESOURCE_EXHAUSTED", "FAILED_PRECONDITION"):
                yield f"is refused {call.value}: {code}", got(worse, CallAnswer(code=code))
        if (worse := service.spend(state.world, "losses")) is not None:
            yield f"calls {call.value} in vain", got(worse, CallAnswer())
            yield f"calls {call.value}, the answer is lost", got(service.handle(worse, call)[0], CallAnswer())
            flying = worse._replace(in_flight=(*worse.in_flight, (call, 2)))
            yield f"calls {call.value}, which is under way", got(flying, CallAnswer())

    def _answered(self, state: State, who: int) -> Iterator[tuple[str, State]]:
        actor = state.actors[who]
        assert actor.call is not None
        assert actor.answer is not None
        before = actor.memory or state.record
        record = _moved(self.answered(before, actor.call, actor.answer, NOW, self.limits), 0)
        after = actor._replace(at="moved", record=record, call=None, answer=None, steady=None)
        if record == before:
            yield "has no answer to write", _put(state, who, after._replace(at="held", record=None))
        else:
            yield from _written("writes the answer", _put(state, who, after), who, self)

    # What must hold

    def _check(self, state: State) -> None:
        path = [state]
        if state.world.broken:
            self._violated(path, state.world.broken)
        if not state.record.open:
            self._check_end(path)
        elif self.futures and (what := _unsaid(state)) is not None:
            self._violated(path, what)
        if self.futures:
            if any(actor.cut for actor in state.actors):
                self._check_unrecorded(state)
            self._check_future(state)

    def _check_end(self, path: list[State]) -> None:
        state = path[-1]
        world, record = state.world, state.record
        if not record.note:
            self._violated(path, f"{record.phase.value} without a word")
        # Only of an untouched record it is said that nothing was done.
        if record.phase is Phase.CANCELLED and world.downs and record.untouched and not self.budget.people:
            self._violated(path, "cancelled, and it was taken down")
        if world.view.state in ("STOPPING", "STOPPED") and not world.theirs:
            self._violated(path, f"{record.phase.value}, and the node is {world.view.state}")
        # A reset that was begun and forgotten looks like one that was carried out.
        if self.hosts == 1 and record.phase is Phase.DONE and not (world.downs or world.starts or self.budget.people):
            self._violated(path, "done, and nothing was")

    def _check_future(self, state: State) -> None:
        """If nothing more goes wrong the restart ends, and well."""
        path = []
        for _ in range(GOOD_STEPS):
            if state in self.good:
                break
            path.append(state)
            if not state.record.open and not any(not op.done for op in state.world.view.ops):
                self._check_end(path)
                break
            state = canonical(self._well(state))
        else:
            self._violated(path, "the restart never ends though nothing goes wrong any more")
        self.good.update(path)

    def _check_unrecorded(self, state: State) -> None:
        """If a driver that cannot write never can again, and nothing else goes wrong, the node is not left down."""
        path: dict[State, None] = {}
        while state not in path and state not in self.good_unrecorded:
            path[state] = None
            state = canonical(self._well(state, cut=True))
        states = list(path)
        again = states[states.index(state) :] if state in path else []  # what comes again and again
        if again and all(_is_down(one.world) for one in again):
            self._violated(states, f"the node is {state.world.view.state}, and the ledger cannot be written")
        self.good_unrecorded.update(path)

    def _well(self, state: State, *, cut: bool = False) -> State:
        """What happens next if nothing goes wrong: the drivers move, then the service, then time.

        `cut`: a driver that cannot write never can again.
        """
        for who in (0, 1):
            fails = cut and state.actors[who].cut
            for label, after in self._driver(state, who):
                if label == "dies" or (fails and label in _STORED):
                    continue
                if after is not state:
                    return after
                break
        return _ticked(state._replace(world=service.settled(state.world)))

    def _violated(self, path: list[State], what: str) -> None:
        goes_on = [_line("(nothing goes wrong)", state) for state in path[1:]]
        raise Violation("\n".join([what, *self.trace(path[0]), *goes_on]))

    def trace(self, state: State) -> list[str]:
        """How a state came about."""
        lines: list[str] = []
        at: State | None = state
        while at is not None and at in self.came:
            before, label = self.came[at]
            lines.append(_line(label, at))
            at = before
        return lines[::-1]


def _line(label: str, state: State) -> str:
    drivers = " ".join(actor.at for actor in state.actors)
    return f"{label:45} {state.record.phase.value:12} {state.world.view.state:10} {drivers}"


def _first_record(*, watched: bool) -> RestartRecord:
    target, signals = Target("p", "z", "n"), ("cloud", "peer") if watched else ()
    first = Kept(target, Action.RESTART_NODE, Phase.REQUESTED, "", "", (), "me", requested=NOW, signals=signals)
    return _moved(first, 0)


def _is_down(world: World) -> bool:
    return world.view.state in ("STOPPING", "STOPPED") and not world.theirs


def _unsaid(state: State) -> str | None:
    """Whoever finds the record has to see from it that the node may be down."""
    if _is_down(state.world) and state.world.downs and state.record.phase not in TOUCHED:
        return f"the node is {state.world.view.state}, and its record {state.record.phase.value}"
    return None


def _jumps(state: State) -> Iterator[tuple[str, State]]:
    """The clock that all go by from now on has jumped: an hour or 90 days on, or an hour back."""
    if (worse := service.spend(state.world, "jumps")) is not None:
        for ahead, how in ((1, "ahead"), (-1, "behind")):
            yield how, state._replace(world=worse._replace(ahead=ahead), record=_moved(state.record, ahead * JUMP))


def _put(state: State, who: int, actor: Actor) -> State:
    actors = (actor, state.actors[1]) if who == 0 else (state.actors[0], actor)
    return State(state.world, state.record, actors, state.owner, state.dead, state.age)


_STARTED_ON = ("STOPPED", "READY")  # which may be an old one: a node that runs is not started
_WRITES = ("takes the lease", "writes", "writes the answer")
_STORED = frozenset(_WRITES)  # the labels of writes that succeed, and are known to


def _written(label: str, state: State, who: int, checker: Checker) -> Iterator[tuple[str, State]]:
    """What may come of a write of what the driver has decided: it is stored, or not, or is and that is not known."""
    actor = state.actors[who]
    if actor.stale:
        yield label, _put(state, who, Actor())  # it finds another version: another driver has it
    else:
        yield label, _recorded(state, who)
    worse = state.world if actor.cut else service.spend(state.world, "outages")
    if worse is None:
        return
    failed = _unrecorded(state._replace(world=worse), who, checker)
    yield f"{label}, and cannot", failed
    if not actor.cut:
        stored = _put(_recorded(state, who), who, failed.actors[who])
        yield f"{label}, and does not know it", stored._replace(world=worse)


def _recorded(state: State, who: int) -> State:
    """What was decided is in the ledger. Another that had the lease finds another version, and drives no more."""
    actor, other = state.actors[who], state.actors[1 - who]
    assert actor.record is not None
    if other.memory is not None:
        other = other._replace(stale=True)
    elif state.owner != who:
        other = Actor(cut=other.cut)
    state = _put(state._replace(record=actor.record, dead=False, age=0), 1 - who, other)
    if not actor.record.open:
        return _put(state._replace(owner=-1), who, Actor())
    at = "held" if actor.call is None else "sending"
    return _put(state._replace(owner=who), who, Actor(at, call=actor.call, steady=actor.steady))


def _unrecorded(state: State, who: int, checker: Checker) -> State:
    """It was not written: the driver goes on with it all the same, or gives up."""
    actor = state.actors[who]
    assert actor.record is not None
    if not checker.goes_on_unrecorded(actor.memory or state.record, actor.record):
        # Before the node is touched that is as if it had died: what it cannot write afterwards is another outage.
        return _put(state, who, Actor(cut=state.record.phase in TOUCHED))
    at = "held" if actor.call is None else "sending"
    return _put(state, who, Actor(at, call=actor.call, cut=True, memory=actor.record, stale=actor.stale))


def _ticked(state: State) -> State:
    """Time passes: what was about to be called is too old to be called now."""
    first, second = state.actors
    return State(
        service.ticked(state.world),
        _moved(state.record, 1),
        (_later(first), _later(second)),
        state.owner,
        state.dead,
        min(state.age + 1, LEASE),
    )


def _later(actor: Actor) -> Actor:
    if actor.memory is not None:
        actor = actor._replace(memory=_moved(actor.memory, 1))
    if actor.steady is not None:
        actor = actor._replace(steady=_moved(actor.steady, 1))
    if actor.at == "sending":
        return actor._replace(at="held", call=None)
    if actor.at == "moved" and actor.record is not None:
        return actor._replace(record=_moved(actor.record, 1), call=None)
    return actor


@lru_cache(maxsize=1 << 18)
def _moved(record: RestartRecord, ticks: int) -> RestartRecord:
    """The record so many ticks later, with what makes no difference taken out."""

    def time_of(when: float) -> float:
        return min(max(when - ticks, NOW - MEMORY), NOW + MEMORY) if when else 0.0

    return replace(
        record,
        requested=NOW,
        entered=time_of(record.entered),
        began=time_of(record.began),
        shown_since=time_of(record.shown_since) if record.shown else 0.0,
        well_since=time_of(record.well_since) if record.shown else 0.0,
        not_before=time_of(record.not_before),
        down=1.0 if record.down else 0.0,
        tries=min(record.tries, 3),
        note="!" if record.note else "",
        failure="",
        history=(),
    )


def canonical(state: State) -> State:
    """The state in the form in which it is compared: drivers in order, for they are alike.

    All records in it are as `_moved` makes them.
    """
    first, second = state.actors
    if not state.record.open and first.at == second.at == "idle":
        # Nobody writes it any more.
        budget = state.world.budget._replace(outages=0, jumps=0)
        return State(state.world._replace(budget=budget), state.record, age=state.age)
    if state.owner == 1 or (state.owner < 0 and (first.at, first.cut) > (second.at, second.cut)):
        owner = 0 if state.owner == 1 else state.owner
        return state._replace(actors=(second, first), owner=owner)
    return state


def alone(*faults: str) -> Budget:
    """Each of these faults may happen once, and no other."""
    return Budget(**{name: int(name in faults) for name in Budget._fields})


def main() -> int:
    parser = argparse.ArgumentParser(description="Check the state machine of restarts.")
    parser.add_argument("--depth", type=int, help="steps (12, or with --pairs without end)")
    parser.add_argument("--hosts", type=int, default=1, help="of the node: with several it is reset, not stopped")
    parser.add_argument("--watched", action="store_true", help="a daemon wants it, and no operator")
    parser.add_argument("--pairs", action="store_true", help="each two faults, instead of all together")
    parser.add_argument("--of", nargs="*", default=Budget._fields, help="only the pairs with one of these faults")
    for name, count in Budget()._asdict().items():
        parser.add_argument(f"--{name}", type=int, default=count, help=f"at most ({count})")
    options = parser.parse_args()
    if options.pairs:
        pairs = [pair for pair in itertools.combinations(Budget._fields, 2) if not {*options.of}.isdisjoint(pair)]
        return max([_report(alone(*pair), options, options.depth or 10_000) for pair in pairs])
    budget = Budget(**{name: getattr(options, name) for name in Budget._fields})
    return _report(budget, options, options.depth or 12)


def _report(budget: Budget, options: argparse.Namespace, depth: int) -> int:
    checker, began = Checker(budget, options.hosts, watched=options.watched), time.monotonic()
    faults = ", ".join(f"{count} {name}" for name, count in budget._asdict().items() if count)
    try:
        count = checker.run(depth)
    except Violation as violation:
        print(f"{faults}: {violation}", flush=True)
        return 1
    to = "all there are" if checker.whole else f"to a depth of {checker.depth} steps"
    took = time.monotonic() - began
    print(f"{faults}: {count:,} states, {to}, in {took:.1f} s: nothing is violated", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
