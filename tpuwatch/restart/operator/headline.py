"""What a person has to know first of a restart in trouble: what the node is, and what to do about it. Pure."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tpuwatch.core import capital
from tpuwatch.model import Phase
from tpuwatch.restart.wording import DOWN, words
from tpuwatch.restart.workflow import commands

if TYPE_CHECKING:
    from tpuwatch.model import RestartRecord
    from tpuwatch.restart.workflow.types import PhaseLimits

RETRYING: Final = frozenset({Phase.STOPPED, Phase.STARTING})  # between these a start that fails goes to and fro


@dataclass(frozen=True, slots=True)
class Headline:
    """What the node is and what to do, in a sentence or two; it ends with a colon where commands follow."""

    text: str
    commands: tuple[str, ...] = ()  # to be copied, each as it is

    def __str__(self) -> str:
        return " ".join([self.text, *(f"`{command}`" for command in self.commands)])


def left(record: RestartRecord, driver: str, command: str) -> Headline:
    """Of an unfinished restart that this process does not carry on: who does, and what follows or continues it.

    `driver` is the process that drives it, in words, "" if none does now. `command` is `tpuwatch restart …`.
    """
    node, phase = record.target.node, record.phase
    if driver:
        text = f"{capital(driver)} continues the restart of {node} (phase {words(phase)}). To follow it:"
        return Headline(text, (command,))
    if phase is Phase.REQUESTED:
        return Headline(f"Nothing has been done to {node} yet. To restart it:", (command,))
    if phase is Phase.VERIFYING:
        return Headline(f"{node} runs again, and no process verifies now that it stays well. To verify it:", (command,))
    what = "start it" if phase is Phase.STOPPED else "continue it"
    return Headline(f"{node} {DOWN[phase]}, and no process drives its restart now. To {what}:", (command,))


def trouble(record: RestartRecord, now: float, limits: PhaseLimits) -> Headline | None:
    """Of a restart that is carried on, where it does not go as it should; None where it does."""
    node, phase = record.target.node, record.phase
    if record.unseen_since and now - record.unseen_since >= limits.stale_seconds:
        return _unseen(record)
    limit = _limit(phase, limits)
    is_late = limit is not None and now - record.entered >= limit
    if phase is Phase.REQUESTED and record.tries:
        until = _clock((record.began or record.requested) + limits.wait_seconds)
        return Headline(f"{node} is as it was: its stop failed. tpuwatch tries it again by itself until {until}.")
    if phase in RETRYING and record.tries:
        text = f"{node} IS STOPPED: its start fails. tpuwatch goes on trying by itself, without end. By hand:"
        return Headline(text, (commands.plain(commands.start(record.target)),))
    if not is_late:
        return None
    since, look = _clock(record.entered), (commands.plain(commands.describe(record.target)),)
    if phase is Phase.VERIFYING:
        return Headline(f"{node} runs, and has not been well since {since}. tpuwatch goes on watching it. Look:", look)
    what = f"{node} {DOWN.get(phase, 'is as it was')} since {since}, which is too long."
    then = "waiting, and starts it" if phase in (Phase.INTENT, Phase.STOPPING) else "waiting"
    return Headline(f"{what} tpuwatch goes on {then} by itself. Look:", look)


def _unseen(record: RestartRecord) -> Headline:
    """Nothing can be done before the API says how it is, and tpuwatch cannot start it: perhaps others can."""
    node, since = record.target.node, _clock(record.unseen_since)
    text = f"The Cloud TPU API has not said how {node} is since {since}. tpuwatch goes on asking by itself."
    if record.phase in (Phase.INTENT, Phase.STOPPING, *RETRYING):
        text = f"{node} {DOWN[record.phase]}, as far as is known. {text}"
        if record.shown == "STOPPED":
            return Headline(f"{text} By hand:", (commands.plain(commands.start(record.target)),))
        return Headline(f"{text} Look:", (commands.plain(commands.describe(record.target)),))
    return Headline(text)


def _limit(phase: Phase, limits: PhaseLimits) -> float | None:
    """How long a phase may take before it is trouble; None where it has no such end."""
    return {
        Phase.INTENT: limits.wait_seconds,
        Phase.STOPPING: limits.stop_seconds,
        Phase.STOPPED: limits.wait_seconds,
        Phase.STARTING: limits.start_seconds,
        Phase.VERIFYING: limits.verify_seconds,
    }.get(phase)


def _clock(epoch: float) -> str:
    return time.strftime("%H:%M:%S UTC", time.gmtime(epoch))
