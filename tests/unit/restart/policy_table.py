"""The table of situations that the policy is tested by: what is called for, and what is done or stands in the way."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.unit.restart.policy_scenes import (
    ALL_ON,
    DAY,
    HOUR,
    MINUTE,
    NOW,
    TARGET,
    attempt,
    bad_counts,
    cloud,
    holding,
    judged,
    ledger_view,
    on_it,
    others,
    past,
    reasons_from,
    record,
    seen,
    situation,
)
from tpuwatch.model.answers import Signal
from tpuwatch.model.restart import Blocked, Breaker, Claim, Fleet, Lease, Phase, RestartRecord
from tpuwatch.model.signals import Maintenance
from tpuwatch.model.verdict import Action, Confidence, Verdict
from tpuwatch.restart.policy.mass_failure import BadCounts
from tpuwatch.restart.policy.settings import PolicySettings
from tpuwatch.restart.policy.situation import RestartSituation

CLOUD, RUNTIME, HOST, LOGS = Signal.CLOUD, Signal.RUNTIME, Signal.HOST, Signal.LOGS
METADATA, MONITORING = Signal.METADATA, Signal.MONITORING


@dataclass(frozen=True)
class Row:
    """A situation, and what is to become of it: an act, a reason against it, or neither."""

    name: str
    situation: RestartSituation
    expected: Action | Blocked | None
    says: str = ""
    settings: PolicySettings = ALL_ON
    asks: bool | None = None  # whether a person is asked, where that is what the row is about


def with_reasons(*reasons_of: Signal, confidence: Confidence = Confidence.HIGH) -> RestartSituation:
    return situation(judged(reasons=reasons_from(*reasons_of), confidence=confidence))


ALONE = judged(action=Action.MANUAL, reasons=reasons_from(CLOUD), confidence=Confidence.MEDIUM)  # by a watcher
ASKED = record(
    Phase.REQUESTED, signals=("cloud", "runtime"), sources=("cloud", "runtime"), actor="trainer", cause="node_stuck"
)
QUEUED = cloud(hosts=4, queued_resource="queue")
RESET = judged(action=Action.RESET_QUEUED_RESOURCE)
NEAR = Maintenance("SCHEDULED", "PENDING", NOW + 30 * MINUTE, NOW + 5 * HOUR)
PAST = Maintenance("SCHEDULED", "ONGOING", NOW - 5 * HOUR, NOW - 2 * HOUR)
REFUSED = record(Phase.STOPPED, target=replace(TARGET, node="other"), tries=2)
PREEMPTION = judged(Verdict.PREEMPTED, Action.CHECKPOINT, reasons_from(METADATA), Confidence.MEDIUM)


def worse(count: int, began_ago: float) -> tuple[RestartRecord, ...]:
    """Records of more nodes, which have failed."""
    failed = others(count, began_ago=began_ago, phase=Phase.FAILED)
    return tuple(replace(one, target=replace(TARGET, node=f"{one.target.node}-{began_ago:.0f}")) for one in failed)


def stuck_again(ago: float, phase: Phase = Phase.DONE) -> RestartSituation:
    return situation(ledger=past(attempt(ago, cause="node_stuck", phase=phase)))


ROWS = [
    # What is done
    Row("a stuck node is restarted", situation(), Action.RESTART_NODE, "Will stop and start the node."),
    Row("so is one that calls itself well", situation(cloud=cloud(health="HEALTHY")), Action.RESTART_NODE),
    Row("a slice of several hosts is reset", situation(RESET, cloud=QUEUED), Action.RESET_QUEUED_RESOURCE),
    Row("who holds the TPU is ended", on_it(), Action.END_HOLDER, "Will end the process"),
    Row("even on a spot node", on_it(cloud=cloud(health="HEALTHY", spot=True)), Action.END_HOLDER),
    Row("even where the cloud knows no node", on_it(cloud=None), Action.END_HOLDER),
    Row("a runtime is restarted", on_it(Action.RESTART_RUNTIME, Verdict.RUNTIME_STUCK), Action.RESTART_RUNTIME),
    Row("a checkpoint is asked for at once", on_it(judgement=PREEMPTION, confirmation=None), Action.CHECKPOINT),
    Row(
        "a checkpoint by the word of Kubernetes",
        on_it(judgement=replace(PREEMPTION, reasons=reasons_from(Signal.KUBERNETES)), confirmation=None),
        Action.CHECKPOINT,
    ),
    Row(
        "old failures of others do not count",
        holding(*others(5, phase=Phase.FAILED, began_ago=3 * DAY)),
        Action.RESTART_NODE,
    ),
    Row("the same fault days later is a new one", stuck_again(2 * DAY), Action.RESTART_NODE),
    Row(
        "an old record of a checkpoint is no restart",
        situation(ledger=past(attempt(MINUTE, action=Action.CHECKPOINT))),
        Action.RESTART_NODE,
    ),
    Row("what a node's own daemon asks for is done", holding(ASKED, judgement=ALONE), Action.RESTART_NODE),
    # Nothing is called for
    Row("a healthy node", situation(judged(Verdict.HEALTHY, Action.NONE)), None, "Nothing is to be done."),
    Row("one that compiles", situation(judged(Verdict.COMPILING, Action.WAIT)), None, "Nothing is to be done."),
    Row("a program's fault", situation(judged(Verdict.IDLE, Action.FIX_PROGRAM)), None, "has to be fixed"),
    Row("a stopped node", situation(judged(Verdict.STOPPED, Action.MANUAL)), None, "operator is needed"),
    Row("the cloud's word alone", situation(ALONE), None, "operator is needed"),
    # Never
    Row(
        "a preempted node",
        situation(judged(Verdict.PREEMPTED, Action.RECREATE)),
        Blocked.RECREATE,
        "deletes and creates no",
    ),
    Row("PREEMPTED", situation(cloud=cloud("PREEMPTED")), Blocked.TAKEN, "can only be recreated"),
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
    Row(
        "… far away", situation(cloud=cloud(maintenance=replace(NEAR, start=NOW + DAY, end=None))), Action.RESTART_NODE
    ),
    Row("… over", situation(cloud=cloud(maintenance=replace(NEAR, status="COMPLETED"))), Action.RESTART_NODE),
    Row("… whose time is over", situation(cloud=cloud(maintenance=PAST)), Action.RESTART_NODE),
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
        situation(RESET, cloud=QUEUED, spared=("train-2 (idle)", "train-9 (READY, HEALTHY)")),
        Blocked.HOSTS,
        "train-2 (idle) and train-9 (READY, HEALTHY)",
    ),
    Row("no queued resource to reset", situation(RESET, cloud=cloud(hosts=4)), Blocked.HOSTS, "no queued resource"),
    Row("to end a process elsewhere", on_it(own=False), Blocked.ELSEWHERE),
    Row("a checkpoint elsewhere", situation(PREEMPTION), Blocked.ELSEWHERE),
    Row("just booted", situation(up_since=NOW - MINUTE), Blocked.BOOT_GRACE, "1 min ago"),
    Row("just READY", situation(up_since=None, cloud=cloud(changed=NOW - MINUTE)), Blocked.BOOT_GRACE),
    Row(
        "up since an unknown time", situation(up_since=None, cloud=cloud(changed=None)), Blocked.BOOT_GRACE, "not known"
    ),
    # Proof
    Row("logs alone", with_reasons(LOGS), Blocked.FORGEABLE, "any user of the machine"),
    Row("the cloud alone", with_reasons(CLOUD), Blocked.ONE_SOURCE),
    Row("the runtime twice", with_reasons(RUNTIME, RUNTIME), Blocked.ONE_SOURCE),
    Row("the host and its logs", with_reasons(HOST, LOGS), Blocked.ONE_SOURCE, "two sources"),
    Row("hearsay", with_reasons(LOGS, METADATA, MONITORING), Blocked.ONE_SOURCE),
    Row("no reasons", with_reasons(), Blocked.ONE_SOURCE),
    Row("the cloud and its monitoring", with_reasons(CLOUD, MONITORING), Blocked.ONE_SOURCE),
    Row("the cloud and the metadata server", with_reasons(CLOUD, METADATA), Blocked.ONE_SOURCE),
    Row("the cloud and a log line", with_reasons(CLOUD, LOGS), Blocked.ONE_SOURCE),
    Row(
        "the cloud and a runtime that rests",
        situation(judged(reasons=(*reasons_from(CLOUD), *reasons_from(RUNTIME, idle=True)))),
        Blocked.ONE_SOURCE,
    ),
    Row("the cloud and the kernel", with_reasons(CLOUD, HOST), Action.RESTART_NODE),
    Row("the cloud and the silence of the machine", with_reasons(CLOUD, Signal.PEER), Action.RESTART_NODE),
    Row(
        "the runtime of another boot",
        situation(judged(reasons=(*reasons_from(CLOUD), *reasons_from(RUNTIME, age=2 * DAY)))),
        Blocked.BEFORE_BOOT,
    ),
    Row(
        "a word without a time",
        situation(judged(reasons=(*reasons_from(CLOUD), replace(reasons_from(RUNTIME)[0], at=None)))),
        Blocked.ONE_SOURCE,
    ),
    Row(
        "likely is not enough for a node",
        with_reasons(CLOUD, RUNTIME, confidence=Confidence.MEDIUM),
        Blocked.UNSURE,
        "medium",
    ),
    Row(
        "weak is enough for nothing",
        on_it(judgement=judged(Verdict.JOB_STUCK, Action.END_HOLDER, confidence=Confidence.LOW)),
        Blocked.UNSURE,
    ),
    Row(
        "a checkpoint by the log's word",
        on_it(judgement=replace(PREEMPTION, reasons=reasons_from(LOGS))),
        Blocked.ONE_SOURCE,
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
        Action.RESTART_NODE,
    ),
    Row("tpuwatch has just begun", situation(watching_since=NOW - MINUTE), Blocked.STARTUP),
    Row("the own node", situation(own=True), Blocked.OWN_NODE, "another machine"),
    Row("the own slice", situation(RESET, cloud=QUEUED, own=True), Blocked.OWN_NODE),
    # What a node's own daemon asks for
    Row("an old request", holding(replace(ASKED, requested=NOW - HOUR), judgement=ALONE), None),
    Row(
        "one of an earlier boot",
        situation(ALONE, up_since=NOW - HOUR, ledger=ledger_view(replace(ASKED, requested=NOW - 2 * HOUR))),
        None,
    ),
    Row(
        "… though it is young",
        situation(ALONE, up_since=NOW - 400, ledger=ledger_view(replace(ASKED, requested=NOW - 500))),
        None,
    ),
    Row("one from the future", holding(replace(ASKED, requested=NOW + HOUR), judgement=ALONE), None),
    Row(
        "one that the cloud does not confirm",
        situation(replace(ALONE, reasons=reasons_from(MONITORING)), ledger=ledger_view(ASKED)),
        Blocked.ONE_SOURCE,
    ),
    Row("one for another fault", holding(replace(ASKED, cause="runtime_stuck"), judgement=ALONE), None),
    Row(
        "one by the log's word",
        holding(replace(ASKED, signals=("logs",), sources=("text",)), judgement=ALONE),
        Blocked.ONE_SOURCE,
    ),
    Row(
        "one by the cloud's own word",
        holding(replace(ASKED, sources=("cloud", "process")), judgement=ALONE),
        Blocked.ONE_SOURCE,
    ),
    Row("one of a former version", holding(replace(ASKED, sources=()), judgement=ALONE), Blocked.ONE_SOURCE),
    Row("one without a reason", holding(replace(ASKED, sources=("gossip",)), judgement=ALONE), Blocked.ONE_SOURCE),
    Row("one that a driver has taken up", holding(replace(ASKED, lease=Lease("w")), judgement=ALONE), None),
    Row("one for a healthy node", situation(judged(Verdict.HEALTHY, Action.NONE), ledger=ledger_view(ASKED)), None),
    # Not the time for it
    Row("no ledger", situation(ledger=None, ledger_problem="no room"), Blocked.NO_LEDGER, "DOWN: no room"),
    Row("no ledger for a checkpoint", on_it(judgement=PREEMPTION, ledger=None), Blocked.NO_LEDGER),
    *(
        Row(f"in {phase.value}", holding(record(phase)), Blocked.UNDER_WAY, phase.value)
        for phase in Phase
        if record(phase).open
    ),
    Row("asked for, beside a verdict of one's own", holding(ASKED), Action.RESTART_NODE),
    Row("a storm in the fleet", situation(bad_counts=bad_counts((100, 10), (50, 1))), Blocked.STORM, "10 of the 100"),
    Row("a storm in the zone", situation(bad_counts=bad_counts((1000, 5), (50, 5))), Blocked.STORM, "zone"),
    Row(
        "a person is called for the storm, not for each node in it",
        situation(ALONE, bad_counts=bad_counts((100, 10), (50, 1))),
        Blocked.STORM,
        "10 of the 100",
    ),
    Row(
        "an open breaker",
        situation(ledger=ledger_view(fleet=Fleet(Breaker(NOW - 99 * DAY, "It broke.")))),
        Blocked.BREAKER,
        "It broke.",
    ),
    Row("failures that open it", holding(*others(3, phase=Phase.FAILED)), Blocked.BREAKER, "other-0, other-1"),
    Row(
        "failures among many that helped",
        holding(*others(8, began_ago=2 * HOUR), *worse(2, 3 * HOUR), *worse(1, HOUR)),
        Action.RESTART_NODE,
    ),
    Row(
        "… and one more of the latest",
        holding(*others(7, began_ago=2 * HOUR), *worse(2, 3 * HOUR), *worse(1, HOUR)),
        Blocked.BREAKER,
    ),
    Row(
        "failures before its reset",
        situation(ledger=ledger_view(*others(3, phase=Phase.FAILED), fleet=Fleet(Breaker(reset_at=NOW)))),
        Action.RESTART_NODE,
    ),
    Row("advice is no failure", holding(*others(3, phase=Phase.NEEDS_OPERATOR, stops=0)), Action.RESTART_NODE),
    Row("nor is what others did to nodes", holding(*others(3, phase=Phase.NEEDS_OPERATOR)), Action.RESTART_NODE),
    Row(
        "the node was created again since",
        situation(ledger=past(attempt(HOUR, phase=Phase.NEEDS_OPERATOR)), cloud=cloud(created=NOW - 0.5 * HOUR)),
        Action.RESTART_NODE,
    ),
    Row(
        "the node was created before that",
        situation(ledger=past(attempt(HOUR, phase=Phase.NEEDS_OPERATOR)), cloud=cloud(created=NOW - 2 * HOUR)),
        Blocked.NEEDS_OPERATOR,
    ),
    Row(
        "the last one called a person",
        situation(ledger=past(attempt(HOUR, phase=Phase.NEEDS_OPERATOR, stops=0))),
        Blocked.NEEDS_OPERATOR,
    ),
    Row("the same fault again", stuck_again(5 * HOUR), Blocked.SAME_CAUSE, "back 5 h after"),
    Row("… though it failed", stuck_again(5 * HOUR, Phase.FAILED), Blocked.SAME_CAUSE),
    Row("… or was cancelled", stuck_again(5 * HOUR, Phase.CANCELLED), Blocked.SAME_CAUSE, "was cancelled"),
    Row("a clock that jumped", situation(clock="this machine's clock is 1 day ahead"), Blocked.CLOCK, "is 1 day ahead"),
    Row("a start that was not refused yet", holding(replace(REFUSED, tries=0)), Action.RESTART_NODE),
    Row("no capacity in the zone", holding(REFUSED), Blocked.NO_CAPACITY, "other"),
    Row(
        "… nor while the start is tried again",
        holding(replace(REFUSED, phase=Phase.STARTING)),
        Blocked.NO_CAPACITY,
        "other",
    ),
    Row("the node that waited runs", holding(replace(REFUSED, phase=Phase.VERIFYING)), Action.RESTART_NODE),
    Row(
        "no capacity in another zone",
        holding(replace(REFUSED, target=replace(TARGET, zone="z", node="other"))),
        Action.RESTART_NODE,
    ),
    Row(
        "no capacity is needed for a reset",
        situation(RESET, cloud=QUEUED, ledger=ledger_view(REFUSED)),
        Action.RESET_QUEUED_RESOURCE,
    ),
    Row(
        "restarted a moment ago",
        situation(ledger=past(attempt(5 * MINUTE, phase=Phase.FAILED))),
        Blocked.BACKOFF,
        "5 min more",
    ),
    Row(
        "restarted twice",
        situation(ledger=past(attempt(15 * MINUTE, phase=Phase.FAILED), attempt(HOUR))),
        Blocked.BACKOFF,
    ),
    Row("once it was enough", situation(ledger=past(attempt(15 * MINUTE, phase=Phase.FAILED))), Action.RESTART_NODE),
    Row("it helped a while ago", situation(ledger=past(attempt(25 * MINUTE))), Blocked.COOLDOWN, "5 min more"),
    Row(
        "three times in a day",
        situation(ledger=past(*(attempt(n * 7 * HOUR) for n in (1, 2, 3)))),
        Blocked.NODE_BUDGET,
        "3 of its 3",
    ),
    Row(
        "three times in two days",
        situation(ledger=past(*(attempt(n * 10 * HOUR) for n in (1, 2, 3)))),
        Action.RESTART_NODE,
    ),
    Row("ten of a hundred within the hour", holding(*others(10)), Blocked.FLEET_BUDGET, "10 restarts"),
    Row("nine of them", holding(*others(9)), Action.RESTART_NODE),
    Row("ten that were cancelled", holding(*others(10, phase=Phase.CANCELLED, stops=0)), Action.RESTART_NODE),
    Row("ten an hour ago", holding(*others(10, began_ago=HOUR)), Action.RESTART_NODE),
    Row(
        "one of a small fleet",
        situation(bad_counts=bad_counts((3, 1), (3, 1)), ledger=ledger_view(*others(1))),
        Blocked.FLEET_BUDGET,
    ),
    Row("the first of a small fleet", situation(bad_counts=bad_counts((3, 1), (3, 1))), Action.RESTART_NODE),
    Row(
        "a claim counts",
        situation(
            bad_counts=BadCounts(),
            ledger=ledger_view(fleet=Fleet(claims=(Claim(replace(TARGET, node="other"), NOW - 1),))),
        ),
        Blocked.FLEET_BUDGET,
    ),
    Row(
        "one that is still under way counts",
        situation(
            bad_counts=BadCounts(),
            ledger=ledger_view(record(Phase.STARTING, target=replace(TARGET, node="other"), requested=NOW - DAY)),
        ),
        Blocked.FLEET_BUDGET,
    ),
    Row(
        "a checkpoint a moment ago",
        on_it(judgement=PREEMPTION, ledger=past(attempt(MINUTE, action=Action.CHECKPOINT))),
        Blocked.BACKOFF,
    ),
    # The switches
    Row("observe", situation(), Blocked.OBSERVE, '"observe"', replace(ALL_ON, act=False)),
    Row("by default", situation(), Blocked.OBSERVE, settings=PolicySettings()),
    Row("observe, on the machine", on_it(), Blocked.OBSERVE, settings=PolicySettings()),
    Row("switched off", situation(), Blocked.SWITCHED_OFF, "restart_node", PolicySettings(act=True)),
    Row(
        "another one is on",
        situation(),
        Blocked.SWITCHED_OFF,
        settings=PolicySettings(act=True, allowed=frozenset({Action.END_HOLDER})),
    ),
    Row(
        "a checkpoint that is off", on_it(judgement=PREEMPTION), Blocked.SWITCHED_OFF, settings=PolicySettings(act=True)
    ),
]
