"""What speaks against interrupting a node whatever is allowed: it would be wrong there, or it is not proven. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tpuwatch.health.evidence import Witness
from tpuwatch.health.verdict import STUCK, Rung, Sureness, Verdict
from tpuwatch.health.words import clean, length
from tpuwatch.restart.policy.budgets import Hold
from tpuwatch.restart.policy.confirm import takes
from tpuwatch.restart.policy.decision import Blocked
from tpuwatch.restart.policy.situation import OF_THE_MACHINE, OF_THE_NODE, proves

if TYPE_CHECKING:
    from tpuwatch.health.evidence import Maintenance
    from tpuwatch.restart.policy.settings import Settings
    from tpuwatch.restart.policy.situation import Situation

STALE_SECONDS: Final = 120.0  # a node is judged at least once a minute
SKEW_SECONDS: Final = 5.0
AHEAD_SECONDS: Final = 3600.0  # a maintenance that begins within this time is as good as under way
OVER_SECONDS: Final = 3600.0  # one whose window ended longer ago is over, whatever its status says
_TAKEN: Final = frozenset({"PREEMPTED", "TERMINATED"})
_OVER: Final = frozenset({"COMPLETED", "DONE", "CANCELLED", "CANCELED"})
_MAY_WARN: Final = frozenset({Witness.CLOUD, Witness.METADATA, Witness.RUNTIME})  # who may call for a checkpoint


def wrong(situation: Situation, rung: Rung, settings: Settings) -> Hold | None:
    """The first reason why it would be wrong, or not proven; None if there is none."""
    for check in _CHECKS:
        if (found := check(situation, rung, settings)) is not None:
            return found
    return None


def wrong_to_checkpoint(situation: Situation, rung: Rung, settings: Settings) -> Hold | None:
    """The same for a checkpoint, which interrupts nothing, and for which there may be seconds only."""
    if (found := _old(situation, rung, settings) or _place(situation, rung, settings)) is not None:
        return found
    if not situation.heard(this_boot=False) & _MAY_WARN:
        return Hold(Blocked.ONE_WITNESS, "neither the cloud nor the metadata server nor the runtime speaks for it")
    return None


def _recreate(_situation: Situation, rung: Rung, _settings: Settings) -> Hold | None:
    if rung is Rung.RECREATE:
        return Hold(Blocked.RECREATE, "tpuwatch deletes and creates no nodes: the commands for it are in the remedy")
    return None


def _verdict(situation: Situation, _rung: Rung, _settings: Settings) -> Hold | None:
    verdict = situation.judgement.verdict
    if verdict is Verdict.MAINTENANCE:
        return Hold(Blocked.MAINTENANCE, "the node is under maintenance, which ends by itself")
    if verdict is Verdict.PREEMPTED:
        return Hold(Blocked.TAKEN, "the node was taken away, and can only be created anew")
    if verdict not in STUCK:
        return Hold(Blocked.NOT_STUCK, f"nothing is interrupted on the verdict {verdict.value}")
    return None


def _old(situation: Situation, _rung: Rung, _settings: Settings) -> Hold | None:
    age = situation.now - situation.judgement.at
    if -SKEW_SECONDS <= age <= STALE_SECONDS:
        return None
    when = f"{length(age)} old" if age > 0 else "from the future"
    return Hold(Blocked.STALE, f"the verdict is {when}")


def _place(situation: Situation, rung: Rung, _settings: Settings) -> Hold | None:
    if rung in OF_THE_MACHINE and not situation.own:
        return Hold(Blocked.ELSEWHERE, "it can be done on the machine itself alone")
    return None


def _cloud(situation: Situation, rung: Rung, _settings: Settings) -> Hold | None:
    """Rungs on the machine itself may do without the cloud, where it knows no node to stop or start."""
    node = situation.cloud
    if node is None:
        if rung in OF_THE_NODE:
            return Hold(Blocked.CLOUD_SILENT, "the Cloud TPU API does not say how the node is now")
        return None
    state = clean(node.state, 40) or "(none)"
    if node.state in _TAKEN:
        return Hold(Blocked.TAKEN, f"the node is {state}, and can only be created anew")
    if node.state == "REPAIRING":
        return Hold(Blocked.MAINTENANCE, "the service repairs the node, which ends by itself")
    if node.state.endswith("ING"):
        return Hold(Blocked.CHANGING, f"the node is {state}, and changes by itself")
    if node.health == "UNHEALTHY_MAINTENANCE" or _near(node.maintenance, situation.now):
        return Hold(Blocked.MAINTENANCE, "a maintenance of the node is under way, or near")
    if node.state != "READY":
        return Hold(Blocked.STATE, f"the node is {state}, in which nothing is interrupted")
    return None


def _kind(situation: Situation, rung: Rung, _settings: Settings) -> Hold | None:
    """What the service does not allow for such a node."""
    node = situation.cloud
    if node is None or rung not in OF_THE_NODE:
        return None
    if node.spot:
        return Hold(Blocked.SPOT, "it is a spot node, which may not start again once it is stopped")
    if rung is Rung.RESTART_NODE and node.hosts != 1:
        return Hold(Blocked.HOSTS, f"the node has {node.hosts} hosts, and only those of one can be stopped")
    if rung is Rung.RESET_QUEUED_RESOURCE and not node.queued_resource:
        return Hold(Blocked.HOSTS, "the node has no queued resource that could be reset")
    if rung is Rung.RESET_QUEUED_RESOURCE and situation.spared > 0:
        others = "another node" if situation.spared == 1 else f"{situation.spared} other nodes"
        sentence = f"a reset of its queued resource would restart {others} of it, which must not be interrupted"
        return Hold(Blocked.HOSTS, sentence)
    return None


def _young(situation: Situation, _rung: Rung, settings: Settings) -> Hold | None:
    booted = situation.booted
    if booted is None:
        return Hold(Blocked.BOOT_GRACE, "nobody knows since when the node has been up")
    until = booted + settings.boot_grace_seconds
    if situation.now < until:
        return Hold(Blocked.BOOT_GRACE, f"the node came up {length(situation.now - booted)} ago", until)
    return None


def _proof(situation: Situation, rung: Rung, _settings: Settings) -> Hold | None:
    heard, ever = situation.heard(), situation.heard(this_boot=False)
    if not proves(heard):
        if proves(ever):
            return Hold(Blocked.BEFORE_BOOT, "part of what speaks for it is from before this boot")
        if ever and ever <= {Witness.LOGS}:
            return Hold(Blocked.LOGS_ALONE, "nobody but the logs says so, which anybody may have written")
        return Hold(Blocked.ONE_WITNESS, "it takes two witnesses, and one of them has to be the cloud or the runtime")
    sureness = situation.judgement.sureness
    certain = sureness is Sureness.CERTAIN or situation.wanted is not situation.judgement.rung
    if sureness is Sureness.WEAK or (rung in OF_THE_NODE and not certain):
        return Hold(Blocked.UNSURE, f"the verdict is only {sureness.value}")
    return None


def _unconfirmed(situation: Situation, _rung: Rung, settings: Settings) -> Hold | None:
    seen, judgement = situation.confirmation, situation.judgement
    needed = takes(judgement, settings.confirm_seconds)
    if seen is None or (seen.verdict, seen.rung, seen.until) != (judgement.verdict, judgement.rung, judgement.at):
        return Hold(Blocked.UNCONFIRMED, "it was not seen before")
    if seen.seconds < needed:
        sentence = f"it has held for {length(seen.seconds)}, of the {length(needed)} that it takes"
        return Hold(Blocked.UNCONFIRMED, sentence, seen.since + needed)
    if seen.polls < settings.confirm_polls:
        return Hold(Blocked.UNCONFIRMED, f"{seen.polls} answers say so, of the {settings.confirm_polls} that it takes")
    return None


def _startup(situation: Situation, _rung: Rung, settings: Settings) -> Hold | None:
    until = situation.watching_since + settings.startup_seconds
    if situation.now < until:
        ago = length(situation.now - situation.watching_since)
        return Hold(Blocked.STARTUP, f"tpuwatch began {ago} ago, and only looks on at first", until)
    return None


def _own(situation: Situation, rung: Rung, _settings: Settings) -> Hold | None:
    if situation.own and rung in OF_THE_NODE:
        return Hold(Blocked.OWN_NODE, "tpuwatch runs on it, and another machine has to do it")
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
