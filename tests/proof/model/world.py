"""The service as the model checker has it: one node, its operations, calls that are on their way, and people.

Every function gives all that may happen next. Time is in ticks; within one, anything may happen in any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tpuwatch.restart.workflow.types import ApiCall, CallAnswer, NodeObservation, Operation, Standing

EPOCH = 900.0  # operations' times show their order alone
AN_HOUR = 3600.0
STALE = 3  # ticks: as long as nothing is given up that may have been stopped
_DURING = {"stop": "STOPPING", "start": "STARTING", "reset": "RESTARTING"}
_AFTER = {"stop": "STOPPED", "start": "READY", "reset": "READY"}
_BEFORE = {"stop": "READY", "start": "STOPPED", "reset": "READY"}


class Op(NamedTuple):
    name: str
    verb: str
    ours: bool
    done: bool = False
    failed: bool = False
    listed: bool = True


class View(NamedTuple):
    """What a look shows."""

    state: str  # "GONE": no such node
    ops: tuple[Op, ...]
    ill: bool = False  # whether the API calls it ill


class Budget(NamedTuple):
    """How often what may still go wrong."""

    crashes: int = 1
    losses: int = 1  # answers that are lost, whatever became of the call
    refusals: int = 1
    failures: int = 1  # operations that fail or vanish
    blinds: int = 1  # looks in which the operations cannot be listed
    people: int = 1  # stops, starts, deletes; preemptions
    turns: int = 0  # changes of what is seen of the node, beside what the API shows
    stales: int = 0  # stretches in which the API shows what was when they began
    outages: int = 0  # stretches of a driver's writes that fail
    jumps: int = 0  # of the clock


class World(NamedTuple):
    view: View = View("READY", ())
    old: View = View("READY", ())  # at the end of the tick before
    frozen: View | None = None  # what the API shows while it is stale
    freezes_ops: bool = False  # the operations too
    stale_for: int = 0  # ticks for which it may be stale yet
    in_flight: tuple[tuple[ApiCall, int], ...] = ()  # calls whose caller has given up, and the ticks left to them
    downs: int = 0  # stops and resets that were accepted of ours
    starts: bool = False  # whether starts were
    theirs: bool = False  # somebody else stopped the node last
    broken: str = ""  # what must never be, and was
    standing: Standing = Standing.HOLDS  # how it stands with what was decided on
    ahead: int = 0  # 1: the drivers' clock has jumped ahead of the service's; -1: it is behind
    budget: Budget = Budget()


def spend(world: World, what: str) -> World | None:
    left = getattr(world.budget, what)
    return world._replace(budget=world.budget._replace(**{what: left - 1})) if left else None


def sight(view: View, now: float, hosts: int, *, blind: bool = False, ahead: int = 0) -> NodeObservation:
    """What is shown of it; `blind`: the operations cannot be listed. By a clock that is ahead they are long ago."""
    gone, epoch = view.state == "GONE", EPOCH - ahead * AN_HOUR
    operations = tuple(
        Operation(op.name, op.verb, epoch + int(op.name), done=op.done, code=8 if op.failed else 0)
        for op in reversed(view.ops)
        if op.listed and not blind
    )
    return NodeObservation(
        now,
        "" if gone else view.state,
        "TIMEOUT" if view.ill else "",
        gone=gone,
        hosts=hosts,
        queued_resource="q" if hosts > 1 else "",
        operations=operations,
        # A list that lacks what was carried out does not claim to be whole.
        listed=not blind and all(op.listed or op.failed for op in view.ops),
    )


def handle(world: World, call: ApiCall) -> tuple[World, CallAnswer]:
    """The service looks at a call of ours."""
    after = _begun(world, call.value, ours=True)
    if after is None:
        return world, CallAnswer(code="NOT_FOUND" if world.view.state == "GONE" else "FAILED_PRECONDITION")
    answer = CallAnswer(operation=after.view.ops[-1].name)
    if call is ApiCall.START:
        return after._replace(starts=True), answer
    broken = "a second stop" if world.downs else "a stop after a start" if world.starts else ""
    return after._replace(downs=after.downs + 1, theirs=False, broken=world.broken or broken), answer


def _begun(world: World, verb: str, *, ours: bool) -> World | None:
    view = world.view
    if view.state != _BEFORE[verb] or any(not op.done for op in view.ops):
        return None
    op = Op(str(len(view.ops) + 1), verb, ours)
    return world._replace(view=View(_DURING[verb], (*view.ops, op)))


def operations(world: World) -> Iterator[tuple[str, World]]:
    """The ways in which the operation that runs may end. It may also never do so."""
    for index, op in enumerate(world.view.ops):
        if op.done:
            continue
        yield f"{op.verb} ends", _ended(world, index, op._replace(done=True), _AFTER[op.verb])
        if (worse := spend(world, "failures")) is not None:
            failed = op._replace(done=True, failed=True)
            undone = worse._replace(downs=worse.downs - (op.ours and op.verb != "start"))  # it never did anything
            yield f"{op.verb} fails", _ended(undone, index, failed, _BEFORE[op.verb])
            yield f"{op.verb} vanishes", _ended(undone, index, failed._replace(listed=False), _BEFORE[op.verb])
            hidden = op._replace(done=True, listed=False)
            yield f"{op.verb} ends unlisted", _ended(worse, index, hidden, _AFTER[op.verb])


def _ended(world: World, index: int, op: Op, state: str) -> World:
    ops = (*world.view.ops[:index], op, *world.view.ops[index + 1 :])
    return world._replace(view=View(state if world.view.state == _DURING[op.verb] else world.view.state, ops))


def late(world: World) -> Iterator[tuple[str, World]]:
    """Calls that are carried out after their caller has given up."""
    for index, (call, _) in enumerate(world.in_flight):
        rest = world._replace(in_flight=world.in_flight[:index] + world.in_flight[index + 1 :])
        yield f"late {call.value}", handle(rest, call)[0]


def people(world: World, hosts: int) -> Iterator[tuple[str, World]]:
    """What others do to the node."""
    after = spend(world, "people")
    if after is None:
        return
    if hosts == 1:
        for verb in ("stop", "start"):
            if (done := _begun(after, verb, ours=False)) is not None:
                yield f"somebody calls {verb}", done._replace(theirs=verb == "stop")
    if world.view.state != "GONE":
        ops = tuple(op._replace(done=True, failed=op.failed or not op.done) for op in world.view.ops)
        yield "somebody deletes it", after._replace(view=View("GONE", ops))
        if world.view.state == "READY":
            yield "preempted", after._replace(view=View("PREEMPTED", ops))


def staleness(world: World) -> Iterator[tuple[str, World]]:
    """The API begins to show what was, of the node alone or of its operations too, or does so no more."""
    if world.frozen is not None:
        yield "the API is up to date", _up_to_date(world)
    elif (after := spend(world, "stales")) is not None:
        after = after._replace(frozen=world.view, stale_for=STALE)
        yield "the API is stale", after
        yield "the API is stale, operations too", after._replace(freezes_ops=True)


def _up_to_date(world: World) -> World:
    return world._replace(frozen=None, freezes_ops=False, stale_for=0)


def shown(world: World) -> View:
    """What the API shows."""
    if world.frozen is None or world.freezes_ops:
        return world.frozen or world.view
    return world.frozen._replace(ops=world.view.ops)


def turns(world: World) -> Iterator[tuple[str, World]]:
    """The node recovers, turns out to be otherwise, is not seen any more, or is as bad as before."""
    if (after := spend(world, "turns")) is None:
        return
    for standing in Standing:
        if standing is not world.standing:
            yield f"the evidence: {standing.value}", after._replace(standing=standing)
    if world.view.ill:
        yield "the API calls it well", after._replace(view=world.view._replace(ill=False))


def ticked(world: World) -> World:
    in_flight = tuple((call, left - 1) for call, left in world.in_flight if left > 1)
    world = world._replace(old=world.view, in_flight=in_flight)
    if world.frozen is None:
        return world
    return world._replace(stale_for=world.stale_for - 1) if world.stale_for > 1 else _up_to_date(world)


def settled(world: World) -> World:
    """Everything that runs has ended well, nothing is on its way, and the API is up to date."""
    for _, after in operations(world):
        return settled(after)
    return _up_to_date(world._replace(in_flight=()))
