"""The table of situations that the policy is tested by: what is called for, and what is done or stands in the way."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.restart.policy_scenes import (
    ALL_ON,
    DAY,
    HOUR,
    MINUTE,
    NOW,
    TARGET,
    attempt,
    books,
    cloud,
    judged,
    on_it,
    others,
    past,
    record,
    said,
    seen,
    situation,
)
from tpuwatch.health.evidence import Maintenance, Witness
from tpuwatch.health.verdict import Rung, Sureness, Verdict
from tpuwatch.restart.policy.decision import Blocked
from tpuwatch.restart.policy.settings import Settings
from tpuwatch.restart.policy.situation import Situation
from tpuwatch.restart.policy.storm import Crowd, Crowds
from tpuwatch.restart.record import Breaker, Claim, Fleet, Lease, Phase, Record

CLOUD, RUNTIME, HOST, LOGS = Witness.CLOUD, Witness.RUNTIME, Witness.HOST, Witness.LOGS
METADATA, MONITORING = Witness.METADATA, Witness.MONITORING


@dataclass(frozen=True)
class Row:
    """A situation, and what is to become of it: an act, a reason against it, or neither."""

    name: str
    situation: Situation
    expected: Rung | Blocked | None
    says: str = ""
    settings: Settings = ALL_ON
    asks: bool | None = None  # whether a person is asked, where that is what the row is about


def with_reasons(*reasons_of: Witness, sureness: Sureness = Sureness.CERTAIN) -> Situation:
    return situation(judged(reasons=said(*reasons_of), sureness=sureness))


ALONE = judged(rung=Rung.ASK, reasons=said(CLOUD), sureness=Sureness.LIKELY)  # a watcher's word on a node
ASKED = record(Phase.REQUESTED, witnesses=("cloud", "runtime"), actor="trainer", cause="node_stuck")
QUEUED = cloud(hosts=4, queued_resource="queue")
RESET = judged(rung=Rung.RESET_QUEUED_RESOURCE)
NEAR = Maintenance("SCHEDULED", "PENDING", NOW + 30 * MINUTE, NOW + 5 * HOUR)
PAST = Maintenance("SCHEDULED", "ONGOING", NOW - 5 * HOUR, NOW - 2 * HOUR)
REFUSED = record(Phase.STOPPED, target=replace(TARGET, node="other"), tries=2)
PREEMPTION = judged(Verdict.PREEMPTED, Rung.CHECKPOINT, said(METADATA), Sureness.LIKELY)


def worse(count: int, began_ago: float) -> tuple[Record, ...]:
    """Records of more nodes, which have failed."""
    failed = others(count, began_ago=began_ago, phase=Phase.FAILED)
    return tuple(replace(one, target=replace(TARGET, node=f"{one.target.node}-{began_ago:.0f}")) for one in failed)


def stuck_again(ago: float, phase: Phase = Phase.DONE) -> Situation:
    return situation(books=past(attempt(ago, cause="node_stuck", phase=phase)))


ROWS = [
    # What is done
    Row("a stuck node is restarted", situation(), Rung.RESTART_NODE, "Will stop and start the node."),
    Row("so is one that calls itself well", situation(cloud=cloud(health="HEALTHY")), Rung.RESTART_NODE),
    Row("a slice of several hosts is reset", situation(RESET, cloud=QUEUED), Rung.RESET_QUEUED_RESOURCE),
    Row("who holds the TPU is ended", on_it(), Rung.END_HOLDER, "Will end the process"),
    Row("even on a spot node", on_it(cloud=cloud(health="HEALTHY", spot=True)), Rung.END_HOLDER),
    Row("even where the cloud knows no node", on_it(cloud=None), Rung.END_HOLDER),
    Row("a runtime is restarted", on_it(Rung.RESTART_RUNTIME, Verdict.RUNTIME_STUCK), Rung.RESTART_RUNTIME),
    Row("a checkpoint is asked for at once", on_it(judgement=PREEMPTION, confirmation=None), Rung.CHECKPOINT),
    Row(
        "old failures of others do not count",
        situation(books=books(*others(5, phase=Phase.FAILED, began_ago=3 * DAY))),
        Rung.RESTART_NODE,
    ),
    Row("the same fault days later is a new one", stuck_again(2 * DAY), Rung.RESTART_NODE),
    Row(
        "an old record of a checkpoint is no restart",
        situation(books=past(attempt(MINUTE, rung=Rung.CHECKPOINT))),
        Rung.RESTART_NODE,
    ),
    Row("what a node's own daemon asks for is done", situation(ALONE, books=books(ASKED)), Rung.RESTART_NODE),
    # Nothing is called for
    Row("a healthy node", situation(judged(Verdict.HEALTHY, Rung.NOTHING)), None, "Nothing is to be done."),
    Row("one that compiles", situation(judged(Verdict.COMPILING, Rung.WAIT)), None, "Nothing is to be done."),
    Row("a program's fault", situation(judged(Verdict.IDLE, Rung.FIX_PROGRAM)), None, "The program has to be mended"),
    Row("a stopped node", situation(judged(Verdict.STOPPED, Rung.ASK)), None, "ask a person"),
    Row("the cloud's word alone", situation(ALONE), None, "ask a person"),
    # Never
    Row(
        "a preempted node",
        situation(judged(Verdict.PREEMPTED, Rung.RECREATE)),
        Blocked.RECREATE,
        "deletes and creates no",
    ),
    Row("PREEMPTED", situation(cloud=cloud("PREEMPTED")), Blocked.TAKEN, "created anew"),
    Row("TERMINATED", situation(cloud=cloud("TERMINATED")), Blocked.TAKEN),
    Row("a verdict of preemption", situation(judged(Verdict.PREEMPTED)), Blocked.TAKEN),
    Row("a spot node", situation(cloud=cloud(spot=True)), Blocked.SPOT),
    Row("a spot slice", situation(RESET, cloud=replace(QUEUED, spot=True)), Blocked.SPOT),
    *(
        Row(state, situation(cloud=cloud(state)), Blocked.CHANGING, "by itself")
        for state in ("CREATING", "STARTING", "STOPPING", "RESTARTING", "REIMAGING", "DELETING", "HIDING", "UNHIDING")
    ),
    Row("…ING, from the machine itself", on_it(cloud=cloud("STOPPING")), Blocked.CHANGING),
    Row("REPAIRING", situation(cloud=cloud("REPAIRING")), Blocked.MAINTENANCE, "repairs"),
    Row("a health of maintenance", situation(cloud=cloud(health="UNHEALTHY_MAINTENANCE")), Blocked.MAINTENANCE),
    Row("a maintenance that is near", situation(cloud=cloud(maintenance=NEAR)), Blocked.MAINTENANCE),
    Row("… under way", situation(cloud=cloud(maintenance=Maintenance("", "ONGOING", None, None))), Blocked.MAINTENANCE),
    Row(
        "… of which nothing is known",
        situation(cloud=cloud(maintenance=Maintenance("", "", None, None))),
        Blocked.MAINTENANCE,
    ),
    Row("… far away", situation(cloud=cloud(maintenance=replace(NEAR, start=NOW + DAY, end=None))), Rung.RESTART_NODE),
    Row("… over", situation(cloud=cloud(maintenance=replace(NEAR, status="COMPLETED"))), Rung.RESTART_NODE),
    Row("… whose time is over", situation(cloud=cloud(maintenance=PAST)), Rung.RESTART_NODE),
    Row("… whose time is just over", situation(cloud=cloud(maintenance=replace(PAST, end=NOW))), Blocked.MAINTENANCE),
    Row("a verdict of maintenance", situation(judged(Verdict.MAINTENANCE)), Blocked.MAINTENANCE),
    Row("unknown", situation(judged(Verdict.UNKNOWN)), Blocked.NOT_STUCK, "unknown"),
    Row("STOPPED", situation(cloud=cloud("STOPPED")), Blocked.STATE, "STOPPED"),
    Row("UNKNOWN after a repair", situation(cloud=cloud("UNKNOWN")), Blocked.STATE),
    Row("a state that is new", situation(cloud=cloud("STATE_17")), Blocked.STATE),
    Row("no state", situation(cloud=cloud("")), Blocked.STATE, "(none)"),
    Row("the cloud is silent", situation(cloud=None), Blocked.CLOUD_SILENT),
    Row("an old verdict", situation(judged(at=NOW - HOUR)), Blocked.STALE, "1 h old"),
    Row("a verdict from the future", situation(judged(at=NOW + HOUR)), Blocked.STALE, "future"),
    Row("several hosts cannot be stopped", situation(cloud=QUEUED), Blocked.HOSTS, "4 hosts"),
    Row(
        "other nodes of the queued resource",
        situation(RESET, cloud=QUEUED, spared=1),
        Blocked.HOSTS,
        "another node of it",
    ),
    Row("no queued resource to reset", situation(RESET, cloud=cloud(hosts=4)), Blocked.HOSTS, "no queued resource"),
    Row("to end a process elsewhere", on_it(own=False), Blocked.ELSEWHERE),
    Row("a checkpoint elsewhere", situation(PREEMPTION), Blocked.ELSEWHERE),
    Row("just booted", situation(up_since=NOW - MINUTE), Blocked.BOOT_GRACE, "1 min ago"),
    Row("just READY", situation(up_since=None, cloud=cloud(changed=NOW - MINUTE)), Blocked.BOOT_GRACE),
    Row(
        "up since nobody knows when",
        situation(up_since=None, cloud=cloud(changed=None)),
        Blocked.BOOT_GRACE,
        "nobody knows",
    ),
    # Proof
    Row("logs alone", with_reasons(LOGS), Blocked.LOGS_ALONE, "may have written"),
    Row("the cloud alone", with_reasons(CLOUD), Blocked.ONE_WITNESS),
    Row("the runtime twice", with_reasons(RUNTIME, RUNTIME), Blocked.ONE_WITNESS),
    Row("the host and its logs", with_reasons(HOST, LOGS), Blocked.ONE_WITNESS, "has to be the cloud or the runtime"),
    Row("hearsay", with_reasons(LOGS, METADATA, MONITORING), Blocked.ONE_WITNESS),
    Row("nobody", with_reasons(), Blocked.ONE_WITNESS),
    Row("the cloud and its monitoring", with_reasons(CLOUD, MONITORING), Rung.RESTART_NODE),
    Row(
        "the log of another boot",
        situation(judged(reasons=(*said(CLOUD), *said(LOGS, age=2 * DAY)))),
        Blocked.BEFORE_BOOT,
    ),
    Row(
        "a word without a time",
        situation(judged(reasons=(*said(CLOUD), replace(said(RUNTIME)[0], at=None)))),
        Blocked.ONE_WITNESS,
    ),
    Row(
        "likely is not enough for a node",
        with_reasons(CLOUD, RUNTIME, sureness=Sureness.LIKELY),
        Blocked.UNSURE,
        "likely",
    ),
    Row(
        "weak is enough for nothing",
        on_it(judgement=judged(Verdict.JOB_STUCK, Rung.END_HOLDER, sureness=Sureness.WEAK)),
        Blocked.UNSURE,
    ),
    Row(
        "a checkpoint by the log's word", on_it(judgement=replace(PREEMPTION, reasons=said(LOGS))), Blocked.ONE_WITNESS
    ),
    Row("never seen before", situation(confirmation=None), Blocked.UNCONFIRMED),
    Row("seen of another verdict", situation(confirmation=seen(RESET)), Blocked.UNCONFIRMED),
    Row("held too short", situation(confirmation=seen(judged(), 119)), Blocked.UNCONFIRMED, "of the 2 min"),
    Row("too few answers", situation(confirmation=seen(judged(), HOUR, 2)), Blocked.UNCONFIRMED, "2 answers"),
    Row(
        "contradicted, and too short for that",
        situation(judged(contradictions=("No.",)), confirmation=seen(judged(), 200)),
        Blocked.UNCONFIRMED,
        "4 min",
    ),
    Row(
        "contradicted, and held for long",
        situation(judged(contradictions=("No.",)), confirmation=seen(judged(), 240)),
        Rung.RESTART_NODE,
    ),
    Row("tpuwatch has just begun", situation(watching_since=NOW - MINUTE), Blocked.STARTUP),
    Row("the own node", situation(own=True), Blocked.OWN_NODE, "another machine"),
    Row("the own slice", situation(RESET, cloud=QUEUED, own=True), Blocked.OWN_NODE),
    # What a node's own daemon asks for
    Row("an old request", situation(ALONE, books=books(replace(ASKED, requested=NOW - HOUR))), None),
    Row(
        "one of an earlier boot",
        situation(ALONE, up_since=NOW - HOUR, books=books(replace(ASKED, requested=NOW - 2 * HOUR))),
        None,
    ),
    Row(
        "… though it is young",
        situation(ALONE, up_since=NOW - 400, books=books(replace(ASKED, requested=NOW - 500))),
        None,
    ),
    Row("one from the future", situation(ALONE, books=books(replace(ASKED, requested=NOW + HOUR))), None),
    Row(
        "one that the cloud does not confirm",
        situation(replace(ALONE, reasons=said(MONITORING)), books=books(ASKED)),
        Blocked.ONE_WITNESS,
    ),
    Row("one for another fault", situation(ALONE, books=books(replace(ASKED, cause="runtime_stuck"))), None),
    Row("one by the log's word", situation(ALONE, books=books(replace(ASKED, witnesses=("logs",)))), Rung.RESTART_NODE),
    Row(
        "one by nobody's word",
        situation(ALONE, books=books(replace(ASKED, witnesses=("gossip",)))),
        Blocked.ONE_WITNESS,
    ),
    Row("one that somebody has taken up", situation(ALONE, books=books(replace(ASKED, lease=Lease("w")))), None),
    Row("one for a healthy node", situation(judged(Verdict.HEALTHY, Rung.NOTHING), books=books(ASKED)), None),
    # Not the time for it
    Row("no ledger", situation(books=None), Blocked.NO_LEDGER, "without which"),
    Row("no ledger for a checkpoint", on_it(judgement=PREEMPTION, books=None), Blocked.NO_LEDGER),
    *(
        Row(f"in {phase.value}", situation(books=books(record(phase))), Blocked.UNDER_WAY, phase.value)
        for phase in Phase
        if record(phase).open
    ),
    Row("asked for, beside a verdict of one's own", situation(books=books(ASKED)), Rung.RESTART_NODE),
    Row("a storm in the fleet", situation(crowds=Crowds(Crowd(100, 10), Crowd(50, 1))), Blocked.STORM, "10 of the 100"),
    Row("a storm in the zone", situation(crowds=Crowds(Crowd(1000, 5), Crowd(50, 5))), Blocked.STORM, "zone"),
    Row(
        "a person is called for the storm, not for each node in it",
        situation(ALONE, crowds=Crowds(Crowd(100, 10), Crowd(50, 1))),
        Blocked.STORM,
        "10 of the 100",
    ),
    Row("two of two are no storm", situation(crowds=Crowds(Crowd(2, 2), Crowd(2, 2))), Rung.RESTART_NODE),
    Row("few of many are no storm", situation(crowds=Crowds(Crowd(1000, 40), Crowd(500, 40))), Rung.RESTART_NODE),
    Row(
        "an open breaker",
        situation(books=books(fleet=Fleet(Breaker(NOW - 99 * DAY, "It broke.")))),
        Blocked.BREAKER,
        "It broke.",
    ),
    Row(
        "failures that open it",
        situation(books=books(*others(3, phase=Phase.FAILED))),
        Blocked.BREAKER,
        "other-0, other-1",
    ),
    Row(
        "failures among many that helped",
        situation(books=books(*others(8, began_ago=2 * HOUR), *worse(2, 3 * HOUR), *worse(1, HOUR))),
        Rung.RESTART_NODE,
    ),
    Row(
        "… and one more of the latest",
        situation(books=books(*others(7, began_ago=2 * HOUR), *worse(2, 3 * HOUR), *worse(1, HOUR))),
        Blocked.BREAKER,
    ),
    Row(
        "failures before its reset",
        situation(books=books(*others(3, phase=Phase.FAILED), fleet=Fleet(Breaker(reset_at=NOW)))),
        Rung.RESTART_NODE,
    ),
    Row(
        "advice is no failure", situation(books=books(*others(3, phase=Phase.NEEDS_PERSON, stops=0))), Rung.RESTART_NODE
    ),
    Row("nodes that were lost are", situation(books=books(*others(3, phase=Phase.NEEDS_PERSON))), Blocked.BREAKER),
    Row(
        "the last one called a person",
        situation(books=past(attempt(HOUR, phase=Phase.NEEDS_PERSON, stops=0))),
        Blocked.NEEDS_PERSON,
    ),
    Row("the same fault again", stuck_again(5 * HOUR), Blocked.SAME_CAUSE, "back 5 h after"),
    Row("… though it failed", stuck_again(5 * HOUR, Phase.FAILED), Blocked.SAME_CAUSE),
    Row("… or was cancelled", stuck_again(5 * HOUR, Phase.CANCELLED), Blocked.SAME_CAUSE, "was cancelled"),
    Row("a start that nobody has refused yet", situation(books=books(replace(REFUSED, tries=0))), Rung.RESTART_NODE),
    Row("no capacity in the zone", situation(books=books(REFUSED)), Blocked.NO_CAPACITY, "other"),
    Row(
        "no capacity in another zone",
        situation(books=books(replace(REFUSED, target=replace(TARGET, zone="z", node="other")))),
        Rung.RESTART_NODE,
    ),
    Row(
        "no capacity is needed for a reset",
        situation(RESET, cloud=QUEUED, books=books(REFUSED)),
        Rung.RESET_QUEUED_RESOURCE,
    ),
    Row(
        "restarted a moment ago",
        situation(books=past(attempt(5 * MINUTE, phase=Phase.FAILED))),
        Blocked.BACKOFF,
        "5 min more",
    ),
    Row(
        "restarted twice",
        situation(books=past(attempt(15 * MINUTE, phase=Phase.FAILED), attempt(HOUR))),
        Blocked.BACKOFF,
    ),
    Row("once it was enough", situation(books=past(attempt(15 * MINUTE, phase=Phase.FAILED))), Rung.RESTART_NODE),
    Row("it helped a while ago", situation(books=past(attempt(25 * MINUTE))), Blocked.COOLDOWN, "5 min more"),
    Row(
        "three times in a day",
        situation(books=past(*(attempt(n * 7 * HOUR) for n in (1, 2, 3)))),
        Blocked.NODE_BUDGET,
        "3 of its 3",
    ),
    Row(
        "three times in two days",
        situation(books=past(*(attempt(n * 10 * HOUR) for n in (1, 2, 3)))),
        Rung.RESTART_NODE,
    ),
    Row("ten of a hundred within the hour", situation(books=books(*others(10))), Blocked.FLEET_BUDGET, "10 restarts"),
    Row("nine of them", situation(books=books(*others(9))), Rung.RESTART_NODE),
    Row(
        "ten that were cancelled",
        situation(books=books(*others(10, phase=Phase.CANCELLED, stops=0))),
        Rung.RESTART_NODE,
    ),
    Row("ten an hour ago", situation(books=books(*others(10, began_ago=HOUR))), Rung.RESTART_NODE),
    Row(
        "one of a small fleet",
        situation(crowds=Crowds(Crowd(3, 1), Crowd(3, 1)), books=books(*others(1))),
        Blocked.FLEET_BUDGET,
    ),
    Row("the first of a small fleet", situation(crowds=Crowds(Crowd(3, 1), Crowd(3, 1))), Rung.RESTART_NODE),
    Row(
        "a claim counts",
        situation(crowds=Crowds(), books=books(fleet=Fleet(claims=(Claim(replace(TARGET, node="other"), NOW - 1),)))),
        Blocked.FLEET_BUDGET,
    ),
    Row(
        "one that is still under way counts",
        situation(
            crowds=Crowds(),
            books=books(record(Phase.STARTING, target=replace(TARGET, node="other"), requested=NOW - DAY)),
        ),
        Blocked.FLEET_BUDGET,
    ),
    Row(
        "a checkpoint a moment ago",
        on_it(judgement=PREEMPTION, books=past(attempt(MINUTE, rung=Rung.CHECKPOINT))),
        Blocked.BACKOFF,
    ),
    # The switches
    Row("observe", situation(), Blocked.OBSERVE, '"observe"', replace(ALL_ON, act=False)),
    Row("as it comes", situation(), Blocked.OBSERVE, settings=Settings()),
    Row("observe, on the machine", on_it(), Blocked.OBSERVE, settings=Settings()),
    Row("switched off", situation(), Blocked.SWITCHED_OFF, "restart_node", Settings(act=True)),
    Row(
        "another one is on",
        situation(),
        Blocked.SWITCHED_OFF,
        settings=Settings(act=True, allowed=frozenset({Rung.END_HOLDER})),
    ),
    Row("a checkpoint that is off", on_it(judgement=PREEMPTION), Blocked.SWITCHED_OFF, settings=Settings(act=True)),
]
