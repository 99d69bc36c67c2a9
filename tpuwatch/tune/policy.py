"""The premapped buffer of a workload's next launch: a pure function of its last launches, the host and the bounds.

Nothing is remembered beside the launches: what was tried, what was good and what was bad is read from them each time.
The same launches give the same decision.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tpuwatch.core import format_seconds, format_size
from tpuwatch.model import SIZE, THRESHOLD, SizeDecision, SizeStep
from tpuwatch.tune.grow import grow
from tpuwatch.tune.history import Kind, LaunchSample, set_bytes
from tpuwatch.tune.proposal import SizeProposal, keep, lacked_room, ran_out_of_memory, took_too_long, unsatisfiable
from tpuwatch.tune.shrink import shrink_for_memory, shrink_for_time
from tpuwatch.tune.situation import assess
from tpuwatch.tune.sizes import pages_up

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpuwatch.model import Bounds, Launch, TuneHost
    from tpuwatch.tune.situation import TuneSituation


def decide(launches: Sequence[Launch], host: TuneHost, bounds: Bounds) -> SizeDecision:
    """What the next launch gets. `launches` are those of its workload, the oldest first; none is a first launch."""
    situation = assess(launches, host, bounds)
    proposal = _bounded(situation, _proposed(situation))
    if SIZE in bounds.overrides or THRESHOLD in bounds.overrides:
        proposal = _overridden(situation, proposal)
    now = situation.now
    before = situation.samples[-1] if situation.samples else None
    left = proposal.size == situation.host.default_bytes and proposal.step is not SizeStep.OVERRIDDEN
    changes = proposal.step in (SizeStep.GROW, SizeStep.SHRINK, SizeStep.UNSATISFIABLE) and before is not None
    tried = any((one.size, one.threshold) == (proposal.size, proposal.threshold) for one in situation.informative)
    return SizeDecision(
        step=_direction(proposal, before),
        size_bytes=None if left else proposal.size,
        threshold_bytes=proposal.threshold,
        reasons=(*proposal.reasons, *_besides(situation)),
        before_bytes=before.size if before is not None else None,
        trial=changes and not tried,
        conflict=proposal.conflict,
        need_bytes=situation.need(now.threshold if now is not None else None),
        ceiling_bytes=situation.room.most,
        fast_bytes=situation.fast if proposal.fast is None else proposal.fast,
        fit=situation.fit,
        advice=proposal.advice,
    )


def _direction(proposal: SizeProposal, before: LaunchSample | None) -> SizeStep:
    """The step against what the last launch had, whatever the proposal was reckoned from."""
    if proposal.step not in (SizeStep.GROW, SizeStep.SHRINK) or before is None:
        return proposal.step
    if proposal.size == before.size:
        return SizeStep.KEEP
    return SizeStep.GROW if proposal.size > before.size else SizeStep.SHRINK


def _proposed(situation: TuneSituation) -> SizeProposal:
    """The proposal of the first rule that applies."""
    now = situation.now
    if now is None:
        return _start(situation)
    if now.kind in (Kind.HOST_OOM, Kind.NO_START):
        return shrink_for_memory(situation, now)
    failed = _failed(situation, now)
    if failed is not None:
        return grow(situation, failed)
    if situation.is_slow(now):
        return shrink_for_time(situation, now)
    return keep(now, _worked(now))


def _failed(situation: TuneSituation, now: LaunchSample) -> LaunchSample | None:
    """The launch whose buffer had no room: the last one, or one of the operator's own since."""
    since = situation.informative[situation.informative.index(now) :]
    lacking = [one for one in since if one.kind is Kind.EXHAUSTED and (one.need or one.size + 1) > now.size]
    return lacking[-1] if lacking else None


def _start(situation: TuneSituation) -> SizeProposal:
    """No launch shows how a size of ours does."""
    default, last = situation.host.default_bytes, next(iter(situation.samples[-1:]), None)
    what = f"{format_size(default)}, which libtpu takes by itself" if default else "no buffer, as libtpu does by itself"
    if last is None:
        return SizeProposal(
            SizeStep.START, default, None, (f"There is no launch to learn from yet: it starts from {what}.",)
        )
    if last.ours:
        return keep(last, f"No launch shows anything about the buffer yet; the last one had {format_size(last.size)}.")
    return SizeProposal(SizeStep.START, default, None, (f"{_unfit(situation, last)}: it starts from {what}.",))


def _unfit(situation: TuneSituation, last: LaunchSample) -> str:
    """Why the operator's own size is no start, as the beginning of a sentence."""
    default = format_size(situation.host.default_bytes)
    if last.kind is Kind.EXHAUSTED:
        return f"{lacked_room(last)}, and larger buffers than {default} stay out of libtpu's own region"
    if last.kind is Kind.HOST_OOM:
        return ran_out_of_memory(last)
    if situation.is_slow(last):
        return took_too_long(last, situation.bounds)
    return f"No launch has had a size of tpuwatch's yet, and the operator's own {format_size(last.size)} is no better"


def _worked(now: LaunchSample) -> str:
    seconds = f"took {format_seconds(now.seconds)} to initialise" if now.seconds is not None else ""
    if now.failed:
        took = f" {seconds}, and" if seconds else ""
        return (
            f"The launch of {now.clock}, with {format_size(now.size)},{took} failed later by {now.failed}: nothing "
            "shows that another size would help."
        )
    return f"The launch of {now.clock} worked with {format_size(now.size)}{f', and {seconds}' if seconds else ''}."


def _besides(situation: TuneSituation) -> tuple[str, ...]:
    """A sentence on the last launch, where the size is not derived from it."""
    last = next(iter(situation.samples[-1:]), None)
    if last is None or last is situation.now:
        return ()
    if not last.ours:
        return (f"The launch of {last.clock} had the operator's own {format_size(last.size)}.",)
    if last.kind in (Kind.NOTHING, Kind.NO_START):
        return (f"The launch of {last.clock} ({last.cause}) shows nothing about its buffer.",)
    return ()


def _bounded(situation: TuneSituation, proposal: SizeProposal) -> SizeProposal:
    """Held against what is allowed."""
    room, default = situation.room, situation.host.default_bytes
    size = proposal.size or default
    if not size:
        return replace(proposal, size=0, threshold=None)
    allowed = room.within(pages_up(size, situation.bounds))
    threshold = proposal.threshold if proposal.threshold is not None and proposal.threshold < allowed else None
    if allowed == proposal.size:
        return replace(proposal, threshold=threshold)
    step = SizeStep.SHRINK if allowed < proposal.size else SizeStep.GROW
    step = SizeStep.START if proposal.step is SizeStep.START else step
    reason = f"{format_size(room.least)} to {format_size(room.most)} are allowed ({room.why}): {format_size(allowed)}."
    need = situation.need(proposal.threshold) or 0
    conflict = proposal.conflict
    free = not {SIZE, THRESHOLD} & situation.bounds.overrides.keys()
    if need > allowed and free:  # with what is allowed it would fail for sure
        return unsatisfiable(situation, situation.failures(proposal.threshold)[-1], need)
    if need > allowed:
        conflict = f"{format_size(need)} are needed, and {format_size(room.most)} are the most that is allowed."
    return replace(
        proposal, step=step, size=allowed, threshold=threshold, reasons=(reason, *proposal.reasons), conflict=conflict
    )


def _overridden(situation: TuneSituation, proposal: SizeProposal) -> SizeProposal:
    """Overrides of the configuration take precedence."""
    overrides = situation.bounds.overrides
    if THRESHOLD in overrides:
        threshold = set_bytes(overrides[THRESHOLD])
        reason = f"The configuration sets {THRESHOLD} to {format_size(threshold)}."
        proposal = replace(proposal, threshold=threshold, reasons=(*proposal.reasons, reason))
    if SIZE in overrides:
        size = set_bytes(overrides[SIZE])
        reason = f"The configuration sets {SIZE} to {format_size(size)}."
        proposal = replace(proposal, step=SizeStep.OVERRIDDEN, size=size, reasons=(reason, *proposal.reasons))
    return proposal
