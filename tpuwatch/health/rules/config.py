"""What follows when a signal cannot be asked because of how things are set up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tpuwatch.core import capital, clean, ended
from tpuwatch.health import reason
from tpuwatch.health.proposal import Proposal
from tpuwatch.health.rules.cloud import awaited, never_seen
from tpuwatch.model import Action, Confidence, Problem, RemedyStep, Signal, Verdict

if TYPE_CHECKING:
    from tpuwatch.health.facts import Facts
    from tpuwatch.model import Reason

# Problem: what is wrong, and what to do about it. None of them passes by itself.
FAULTS: Final[dict[Problem, tuple[str, RemedyStep]]] = {
    Problem.UNCONFIGURED: ("It is not known which project, zone or node this is.", RemedyStep.CONFIGURE),
    Problem.NOT_FOUND: ("The project or the zone does not exist, or has no TPUs.", RemedyStep.PLACE),
    Problem.DISABLED: ("The Cloud TPU API is not enabled in the project.", RemedyStep.ENABLE),
    Problem.CREDENTIALS: ("There are no valid credentials for the Cloud TPU API.", RemedyStep.CREDENTIALS),
    Problem.SCOPE: ("The access token lacks the scope for the Cloud TPU API.", RemedyStep.SCOPE),
    Problem.DENIED: ("The account may not list the nodes.", RemedyStep.PERMISSION),
}
_NO_SUCH_NODE: Final = "The zone has no node of this name, and had none since tpuwatch has been asking."


def fault(facts: Facts) -> tuple[str, RemedyStep] | None:
    """What is set up wrongly for the Cloud TPU API, and the step that fixes it."""
    if never_seen(facts):
        return (_NO_SUCH_NODE, RemedyStep.NAME) if facts.knows_queue and facts.queued is None else None
    answer = facts.evidence.cloud
    if answer.problem is None or answer.tried is None:  # not asked yet
        return None
    if answer.problem is Problem.UNCONFIGURED and facts.has_metadata_server:
        return None  # a TPU made through Compute Engine: there is no node to ask for
    return FAULTS.get(answer.problem)


def misconfigured(facts: Facts) -> Proposal | None:
    """No signal can report on the node, because of how things are set up.

    Only a wrong name is a fault of this node. Whatever else is wrong keeps tpuwatch from all nodes alike.
    """
    if never_seen(facts):
        return _not_listed(facts)
    found = fault(facts)
    if found is None or facts.cloud is not None:  # the cloud's last answer still counts
        return None
    summary, step = found
    return Proposal(Verdict.UNKNOWN, Confidence.LOW, Action.NONE, summary, _reasons(facts, summary), (step,))


def _not_listed(facts: Facts) -> Proposal:
    """The zone has no node of this name: the name is wrong only where no queued resource makes the node."""
    reasons = _reasons(facts, _NO_SUCH_NODE)
    return awaited(facts, reasons) or Proposal(
        Verdict.MISCONFIGURED, Confidence.HIGH, Action.MANUAL, _NO_SUCH_NODE, reasons, (RemedyStep.NAME,)
    )


def _reasons(facts: Facts, summary: str) -> tuple[Reason, ...]:
    answer = facts.evidence.cloud
    text = ended(capital(clean(answer.detail, reason.ADVICE_LIMIT))) if answer.detail.strip() else summary
    return (facts.reason_of(Signal.CLOUD, text, answer.tried),)


def nothing_known(facts: Facts) -> Proposal | None:
    """A machine that no signal identifies, and on which nothing uses a TPU."""
    if facts.evidence.cloud.problem is not Problem.UNCONFIGURED or facts.has_program or facts.chips or facts.events:
        return None
    if facts.outside_cloud:
        summary = "Nothing shows that this is a Cloud TPU: there is no metadata server, and [cloud] names no node."
        return Proposal(Verdict.UNKNOWN, Confidence.LOW, Action.NONE, summary, (), (RemedyStep.CONFIGURE,))
    return misconfigured(facts)
