"""Objections to interrupting a node whatever is allowed: it would be wrong, or it is not proven. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tpuwatch.core import clean, length, listed
from tpuwatch.model import FORGEABLE, STUCK, Action, Blocked, Confidence, Signal, Verdict, proven
from tpuwatch.restart.policy.budgets import Hold, under_way
from tpuwatch.restart.policy.situation import OF_THE_MACHINE, OF_THE_NODE, REQUEST_SECONDS, required_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpuwatch.model import Judgement, Maintenance
    from tpuwatch.restart.policy.settings import PolicySettings
    from tpuwatch.restart.policy.situation import RestartSituation


STALE_SECONDS: Final = 120.0  # a node is judged at least once a minute
SKEW_SECONDS: Final = 5.0
AHEAD_SECONDS: Final = 3600.0  # a maintenance that begins within this time is as good as under way
OVER_SECONDS: Final = 3600.0  # one whose window ended longer ago is over, whatever its status says
_TAKEN: Final = frozenset({"PREEMPTED", "TERMINATED"})
_MAX_NAMES: Final = 5  # in a sentence
_OVER: Final = frozenset({"COMPLETED", "DONE", "CANCELLED", "CANCELED"})
# Who may call for a checkpoint.
_MAY_WARN: Final = frozenset({Signal.CLOUD, Signal.METADATA, Signal.KUBERNETES, Signal.RUNTIME})


def first_objection(situation: RestartSituation, action: Action, settings: PolicySettings) -> Hold | None:
    """The first reason why it would be wrong, or not proven; None if there is none."""
    for check in _CHECKS:
        if (found := check(situation, action, settings)) is not None:
            return found
    return None


def checkpoint_objection(situation: RestartSituation, action: Action, settings: PolicySettings) -> Hold | None:
    """The same for a checkpoint, which interrupts nothing, and for which there may be seconds only."""
    if (found := _old(situation, action, settings) or _place(situation, action, settings)) is not None:
        return found
    if not situation.supporting_signals(this_boot=False) & _MAY_WARN:
        return Hold(
            Blocked.ONE_SOURCE, "neither the cloud, the metadata server, Kubernetes nor the runtime supports it"
        )
    return None


def _recreate(_situation: RestartSituation, action: Action, _settings: PolicySettings) -> Hold | None:
    if action is Action.RECREATE:
        return Hold(Blocked.RECREATE, "tpuwatch deletes and creates no nodes: the commands for it are in the remedy")
    return None


def _verdict(situation: RestartSituation, _action: Action, _settings: PolicySettings) -> Hold | None:
    verdict = situation.judgement.verdict
    if verdict is Verdict.MAINTENANCE:
        return Hold(Blocked.MAINTENANCE, "the node is under maintenance, which ends by itself")
    if verdict is Verdict.PREEMPTED:
        return Hold(Blocked.TAKEN, "the node was taken away, and can only be recreated")
    if verdict not in STUCK:
        return Hold(Blocked.NOT_STUCK, f"nothing is interrupted on the verdict {verdict.value}")
    return None


def _old(situation: RestartSituation, _action: Action, _settings: PolicySettings) -> Hold | None:
    if (unseen := situation.judgement.unseen) is not None:
        return Hold(Blocked.STALE, f"the verdict is the last known one: {unseen.detail}")
    if not is_stale(situation.judgement, situation.now):
        return None
    age = situation.now - situation.judgement.at
    when = f"{length(age)} old" if age > 0 else "from the future"
    return Hold(Blocked.STALE, f"the verdict is {when}")


def is_stale(judgement: Judgement, now: float) -> bool:
    """Whether nothing may be done on it any more."""
    return not -SKEW_SECONDS <= now - judgement.at <= STALE_SECONDS


def _place(situation: RestartSituation, action: Action, _settings: PolicySettings) -> Hold | None:
    if action in OF_THE_MACHINE and not situation.own:
        return Hold(Blocked.ELSEWHERE, "it can be done on the machine itself alone")
    return None


def _cloud(situation: RestartSituation, action: Action, _settings: PolicySettings) -> Hold | None:
    """Actions on the machine itself may do without the cloud, where it knows no node to stop or start."""
    node = situation.cloud
    if node is None:
        if action in OF_THE_NODE:
            return Hold(Blocked.CLOUD_SILENT, "the current state of the node is not known from the Cloud TPU API")
        return None
    state = clean(node.state, 40) or "(none)"
    if node.state in _TAKEN:
        return Hold(Blocked.TAKEN, f"the node is {state}, and can only be recreated")
    if node.state == "REPAIRING":
        return Hold(Blocked.MAINTENANCE, "the service repairs the node, which ends by itself")
    if node.state.endswith("ING"):
        return Hold(Blocked.CHANGING, f"the node is {state}, and changes by itself")
    if node.health == "UNHEALTHY_MAINTENANCE" or _near(node.maintenance, situation.now):
        return Hold(Blocked.MAINTENANCE, "a maintenance of the node is under way, or near")
    if node.state != "READY":
        return Hold(Blocked.STATE, f"the node is {state}, in which nothing is interrupted")
    return None


def _kind(situation: RestartSituation, action: Action, _settings: PolicySettings) -> Hold | None:
    """What the service does not allow for such a node."""
    node = situation.cloud
    if node is None or action not in OF_THE_NODE:
        return None
    if node.spot:
        return Hold(Blocked.SPOT, "it is a spot node, which may not start again once it is stopped")
    if action is Action.RESTART_NODE and node.hosts != 1:
        return Hold(Blocked.HOSTS, f"the node has {node.hosts} hosts, and only those of one can be stopped")
    if action is Action.RESET_QUEUED_RESOURCE and not node.queued_resource:
        return Hold(Blocked.HOSTS, "the node has no queued resource that could be reset")
    if action is Action.RESET_QUEUED_RESOURCE and situation.spared:
        sentence = f"a reset of its queued resource would restart {_named(situation.spared)} too, not known to be bad"
        return Hold(Blocked.HOSTS, sentence)
    return None


def _named(nodes: Sequence[str]) -> str:
    more = len(nodes) - _MAX_NAMES
    return listed((*nodes[:_MAX_NAMES], f"{more} more")) if more > 0 else listed(nodes)


def _young(situation: RestartSituation, _action: Action, settings: PolicySettings) -> Hold | None:
    booted = situation.booted
    if booted is None:
        return Hold(Blocked.BOOT_GRACE, "it is not known since when the node has been up")
    until = booted + settings.boot_grace_seconds
    if situation.now < until:
        return Hold(Blocked.BOOT_GRACE, f"the node came up {length(situation.now - booted)} ago", until)
    return None


def _proof(situation: RestartSituation, action: Action, _settings: PolicySettings) -> Hold | None:
    sources, ever = situation.supporting_sources(), situation.supporting_sources(this_boot=False)
    if not proven(sources):
        if proven(ever):
            return Hold(Blocked.BEFORE_BOOT, "part of the evidence is from before this boot")
        if ever and ever <= FORGEABLE:
            return Hold(Blocked.FORGEABLE, "only what any user of the machine can make up reports it")
        return Hold(
            Blocked.ONE_SOURCE, "it takes two sources that cannot repeat each other, and that no user can forge"
        )
    confidence = situation.judgement.confidence
    certain = confidence is Confidence.HIGH or situation.wanted is not situation.judgement.action
    if confidence is Confidence.LOW or (action in OF_THE_NODE and not certain):
        return Hold(Blocked.UNSURE, f"the verdict is only {confidence.value}")
    return None


def _unconfirmed(situation: RestartSituation, _action: Action, settings: PolicySettings) -> Hold | None:
    seen, judgement = situation.confirmation, situation.judgement
    needed = required_seconds(judgement, settings.confirm_seconds)
    if seen is None or (seen.verdict, seen.action, seen.until) != (judgement.verdict, judgement.action, judgement.at):
        return Hold(Blocked.UNCONFIRMED, "it was not seen before")
    if seen.seconds < needed:
        sentence = f"it has held for {length(seen.seconds)}, of the {length(needed)} that it takes"
        return Hold(Blocked.UNCONFIRMED, sentence, seen.since + needed)
    if seen.polls < settings.confirm_polls:
        return Hold(Blocked.UNCONFIRMED, f"{seen.polls} answers say so, of the {settings.confirm_polls} that it takes")
    return None


def _startup(situation: RestartSituation, _action: Action, settings: PolicySettings) -> Hold | None:
    until = situation.watching_since + settings.startup_seconds
    if situation.now < until:
        ago = length(situation.now - situation.watching_since)
        return Hold(Blocked.STARTUP, f"tpuwatch started {ago} ago, and only observes at first", until)
    return None


def _own(situation: RestartSituation, action: Action, _settings: PolicySettings) -> Hold | None:
    if situation.own and action in OF_THE_NODE:
        return Hold(Blocked.OWN_NODE, "tpuwatch runs on it, so that another machine has to do it")
    return None


def _near(maintenance: Maintenance | None, now: float) -> bool:
    """Whether a maintenance is under way or near, as far as it is not known to be over or far."""
    if maintenance is None or maintenance.status.upper() in _OVER:
        return False
    if maintenance.end is not None and now - maintenance.end > OVER_SECONDS:
        return False
    if maintenance.status.upper() == "ONGOING" or maintenance.start is None:
        return True
    return maintenance.start - now <= AHEAD_SECONDS


_CHECKS: Final = (
    _recreate,
    _verdict,
    _old,
    _place,
    _cloud,
    _kind,
    _young,
    _proof,
    _unconfirmed,
    _startup,
    _own,
)


def has_lasted(situation: RestartSituation, settings: PolicySettings) -> bool:
    """Whether a verdict that calls for an operator has held for long enough to notify one."""
    seen, judgement = situation.confirmation, situation.judgement
    if seen is None:
        return False
    if judgement.verdict not in STUCK:
        return seen.seconds >= settings.confirm_seconds
    if situation.now < situation.watching_since + settings.startup_seconds:
        return False
    confirmed = required_seconds(judgement, settings.confirm_seconds)
    # The advice may come and go with a signal, while the verdict stays: that is no reason to wait for ever.
    since = seen.since if judgement.since is None else max(judgement.since, situation.watching_since)
    lasted = max(seen.seconds, judgement.at - since)
    return seen.seconds >= confirmed and lasted >= confirmed + _silence(situation, settings)


def is_alone(situation: RestartSituation, settings: PolicySettings, *, request: bool) -> bool:
    """Whether others would have to restart the own node, and are not asked, or have not come in their time."""
    seen = situation.confirmation
    if seen is None or under_way(situation.record):
        return False
    if not request:
        return True
    asked = max(
        seen.since + required_seconds(situation.judgement, settings.confirm_seconds),
        situation.watching_since + settings.startup_seconds,
        (situation.booted or 0.0) + settings.boot_grace_seconds,
    )
    return situation.now >= asked + REQUEST_SECONDS


def _silence(situation: RestartSituation, settings: PolicySettings) -> float:
    """How long a signal may take that would have the node restarted, from here or by who is asked; in seconds."""
    judgement = situation.judgement
    proven = judgement.confidence is Confidence.HIGH  # all signals have answered, and it takes an operator all the same
    if judgement.verdict is not Verdict.NODE_STUCK or proven:
        return 0.0
    return settings.signal_seconds if settings.act and settings.allowed & OF_THE_NODE else 0.0
