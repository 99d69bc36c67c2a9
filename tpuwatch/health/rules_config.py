"""What follows when a witness cannot be asked because of how things are set up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tpuwatch.health.case import Case
from tpuwatch.health.evidence import Problem, Witness
from tpuwatch.health.remedies import Step
from tpuwatch.health.rules_cloud import never_seen
from tpuwatch.health.verdict import Rung, Sureness, Verdict
from tpuwatch.health.words import capital, clean, ended

if TYPE_CHECKING:
    from tpuwatch.health.facts import Facts

# Problem: what is wrong, and what to do about it. None of them passes by itself.
FAULTS: Final[dict[Problem, tuple[str, Step]]] = {
    Problem.UNCONFIGURED: ("Nothing tells which project, zone or node this is.", Step.CONFIGURE),
    Problem.NOT_FOUND: ("The project or the zone does not exist, or has no TPUs.", Step.PLACE),
    Problem.DISABLED: ("The Cloud TPU API is not enabled in the project.", Step.ENABLE),
    Problem.CREDENTIALS: ("There are no valid credentials for the Cloud TPU API.", Step.CREDENTIALS),
    Problem.SCOPE: ("The access token lacks the scope for the Cloud TPU API.", Step.SCOPE),
    Problem.DENIED: ("The account may not list the nodes.", Step.PERMISSION),
}
_NO_SUCH_NODE: Final = "The zone has no node of this name, and had none since tpuwatch has been asking."


def fault(facts: Facts) -> tuple[str, Step] | None:
    """What is set up wrongly for the Cloud TPU API, and the step that mends it."""
    if never_seen(facts):
        return _NO_SUCH_NODE, Step.NAME
    answer = facts.evidence.cloud
    if answer.problem is None or answer.tried is None:  # not asked yet
        return None
    if answer.problem is Problem.UNCONFIGURED and facts.has_metadata_server:
        return None  # a TPU made through Compute Engine: there is no node to ask for
    return FAULTS.get(answer.problem)


def misconfigured(facts: Facts) -> Case | None:
    """Nobody can tell of the node, because of how things are set up."""
    found = fault(facts)
    if found is None or facts.cloud is not None:  # what the cloud said last still counts
        return None
    summary, step = found
    answer = facts.evidence.cloud
    text = ended(capital(clean(answer.detail))) if answer.detail.strip() else summary
    reasons = (facts.says(Witness.CLOUD, text, answer.tried),)
    return Case(Verdict.MISCONFIGURED, Sureness.CERTAIN, Rung.ASK, summary, reasons, (step,))


def nothing_known(facts: Facts) -> Case | None:
    """A machine of which nothing tells what it is, and on which nothing uses a TPU."""
    if facts.evidence.cloud.problem is not Problem.UNCONFIGURED or facts.program or facts.chips or facts.events:
        return None
    if facts.outside:
        summary = "Nothing tells that this is a Cloud TPU: there is no metadata server, and [cloud] names no node."
        return Case(Verdict.UNKNOWN, Sureness.WEAK, Rung.NOTHING, summary, (), (Step.CONFIGURE,))
    return misconfigured(facts)
