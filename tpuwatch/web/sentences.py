"""Restarts and next launches in sentences, as status, page and API have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tpuwatch.core import clean, format_size, length
from tpuwatch.model import Blocked, Breaker, Phase

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tpuwatch.model import RestartDecision, RestartRecord, RestartsStatus, TunedDocument, TuneDocument

_MAX_SENTENCES: Final = 10  # of a kind, for people
_ADVICE: Final = 1000  # what to do stands at its end
_PHASES: Final = {
    Phase.REQUESTED: "is asked for",
    Phase.INTENT: "is about to begin",
    Phase.STOPPING: "stops the node",
    Phase.STOPPED: "is about to start the node",
    Phase.STARTING: "starts the node",
    Phase.VERIFYING: "verifies that the node stays healthy",
}


def restart_sentences(status: RestartsStatus, now: float) -> list[str]:
    """What an operator should know, a sentence each, most important first; empty if there is nothing."""
    breaker = status.breaker or Breaker()
    sentences = list(status.alarms)
    if breaker.opened is not None:
        sentences.append(
            f"The breaker has been open for {length(now - breaker.opened)}: tpuwatch restarts nothing by itself. "
            f"{clean(breaker.reason, _ADVICE)} When that is seen to: `tpuwatch restarts reset-breaker`."
        )
    if status.problem:
        sentences.append(clean(status.ledger_problem, _ADVICE))
    sentences += _truncated([_under_way(one, now) for one in status.records if one.open], "restarts are under way")
    return sentences + _truncated(list(_blocked(status.decisions)), "nodes need a person")


def _under_way(record: RestartRecord, now: float) -> str:
    what = clean(record.action.value.replace("_", " "), 40)
    sentence = f"{clean(record.target.node, 80)}: {what} {_PHASES[record.phase]}, for {length(now - record.entered)}."
    return f"{sentence} {clean(record.note, _ADVICE)}".rstrip()


def _blocked(decisions: Sequence[tuple[str, RestartDecision]]) -> Iterator[str]:
    """Nodes on which an operator must know why nothing is done."""
    for label, one in decisions:
        if one.needs_operator and one.blocked is not None and one.blocked is not Blocked.BREAKER:
            yield f"{label}: {one.sentence}"


def _truncated(sentences: list[str], what: str) -> list[str]:
    more = len(sentences) - _MAX_SENTENCES
    if more <= 0:
        return sentences
    return [*sentences[:_MAX_SENTENCES], f"{more} more {what}: `/api/v1/restarts` lists them."]


def describe_buffer(size_bytes: int | None) -> str:
    """The premapped buffer in a few words."""
    if size_bytes is None:
        return "libtpu's default"
    return format_size(size_bytes) if size_bytes else "none"


def tune_sentences(document: TuneDocument, limit: int) -> list[str]:
    """A `document` in sentences, one for each of `limit` workloads; empty where nothing is decided."""
    found = document.workloads
    sentences = [_describe_workload(one) for one in found[:limit]]
    if len(found) > limit:
        sentences.append(f"… and {len(found) - limit} more workloads: `tpuwatch tune` lists them.")
    return [*document.problems, *sentences]


def _describe_workload(one: TunedDocument) -> str:
    made = one.decision
    why = " ".join([*made.reasons[:1], *filter(None, [made.conflict])])
    trial = ", on trial" if made.trial else ""
    return f"{one.workload}: {made.step}{trial}, premapped buffer {describe_buffer(made.size_bytes)}. {why}".rstrip()
