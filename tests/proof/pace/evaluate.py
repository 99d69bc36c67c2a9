"""What the detector says about simulated and real loops, counted."""

from __future__ import annotations

import json
import lzma
import math
import random
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.proof.pace.loops import KINDS, PAUSE_KINDS, START, SimulatedLoop
from tpuwatch.model import SlowdownKind
from tpuwatch.progress.blocks import BLOCK_SECONDS, BLOCK_STEPS, StepSample
from tpuwatch.progress.pace import Pace, PacePoint

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

REAL: Final = Path(__file__).parents[4] / "shared" / "pace" / "real_steps.json.xz"
SLOWER: Final = 0.05
TOLD_SECONDS: Final = 7200.0  # within which a slow-down of the steps must be told,
PAUSES_TOLD_SECONDS: Final = 21_600.0  # and one by pauses
MONTH_DAYS: Final = 30.0


class Told(NamedTuple):
    """An alarm, and when it was told."""

    kind: SlowdownKind
    at: float
    since: float
    step: int
    slower: float
    gradual: bool


def alarms(samples: Iterable[StepSample], earlier: Sequence[Sequence[PacePoint]] = ()) -> tuple[list[Told], Pace]:
    """The alarms of a loop of these steps, each when it is told first or has grown."""
    pace = Pace(SLOWER, earlier)
    found: list[Told] = []
    told = 0.0
    for sample in samples:
        pace.add(sample)
        slow = pace.slowdown
        if slow is not None and slow.told != told:
            told = slow.told
            found.append(Told(slow.kind, sample.at, slow.since, slow.step, slow.slower, slow.gradual))
    return found, pace


# -- loops that are well


@dataclass
class Healthy:
    """Alarms of loops that are well, by what they are."""

    days: float
    counts: Counter[str]
    false: list[str]

    @property
    def rate(self) -> float:
        """False alarms in a month of a node."""
        return self.counts["false"] / (self.days / MONTH_DAYS)

    @property
    def bound(self) -> float:
        """The upper end of the 95 % interval of `rate` (two-sided, Poisson)."""
        return poisson_upper(self.counts["false"]) / (self.days / MONTH_DAYS)

    def __str__(self) -> str:
        months = self.days / MONTH_DAYS
        return (
            f"{months:.1f} node-months: {self.counts['false']} false alarms, {self.rate:.2f} a node-month "
            f"(95 %: up to {self.bound:.2f}); besides {self.counts['spell']} spells that were real and passed, "
            f"{self.counts['gradual']} gradual ones, {self.counts['explained']} explained by the program, "
            f"{self.counts['program']} changes of the program that nothing explained"
        )


def healthy(seeds: Iterable[int], days: float) -> Healthy:
    """Loops that are well."""
    counts: Counter[str] = Counter()
    false: list[str] = []
    total = 0.0
    for seed in seeds:
        loop = SimulatedLoop(seed, days)
        found, pace = alarms(loop.samples())
        total += days
        counts["explained"] += len(pace.explained)
        for alarm in found:
            kind = _sort(loop, alarm)
            counts[kind] += 1
            if kind == "false":
                false.append(f"seed {seed}: {alarm}")
    return Healthy(total, counts, false)


def _sort(loop: SimulatedLoop, alarm: Told) -> str:
    block = max(BLOCK_SECONDS, BLOCK_STEPS * loop.base)
    begin, end = alarm.since - START, alarm.at - START
    if any(first < end and last > begin - 2 * block for first, last in loop.spells):
        return "spell"
    if any(begin - 20 * block <= change <= end for change in loop.changes):
        return "program"
    return "gradual" if alarm.gradual else "false"


# -- loops with a fault


class Fault(NamedTuple):
    """A fault, and what was said about it."""

    kind: str
    size: float
    seconds: float | None  # until it was told; None: it was not
    false: int  # alarms before the onset
    off_blocks: float  # of the onset


def faults(seeds: Iterable[int], days: float, smallest: float = 0.05, largest: float = 0.5) -> list[Fault]:
    """Loops with a fault each, of all kinds in turn."""
    results = []
    for number, seed in enumerate(seeds):
        size = random.Random(seed).uniform(smallest, largest)
        loop = SimulatedLoop(seed, days, KINDS[number % len(KINDS)], size)
        found, _ = alarms(loop.samples())
        onset = START + (loop.onset or 0.0)
        limit = PAUSES_TOLD_SECONDS if loop.kind in PAUSE_KINDS else TOLD_SECONDS
        limit += 15 * max(0.0, BLOCK_STEPS * loop.base - BLOCK_SECONDS)  # a block takes longer than a minute
        hits = [one for one in found if onset <= one.at <= onset + limit]
        false = sum(one.at < onset and _sort(loop, one) == "false" for one in found)
        block = max(BLOCK_SECONDS, BLOCK_STEPS * loop.base)
        results.append(
            Fault(
                loop.kind or "",
                size,
                hits[0].at - onset if hits else None,
                false,
                abs(hits[0].since - onset) / block if hits else 0.0,
            )
        )
    return results


def recall(results: Iterable[Fault], smallest: float) -> tuple[int, int]:
    """Of the faults of at least that size, those that were told, and all."""
    chosen = [one for one in results if one.size >= smallest]
    return sum(one.seconds is not None for one in chosen), len(chosen)


def table(results: Sequence[Fault]) -> str:
    """A line for each kind: told of all, the median time to tell, how far off the onset is."""
    lines = []
    for kind in KINDS:
        chosen = [one for one in results if one.kind == kind]
        times = sorted(one.seconds for one in chosen if one.seconds is not None)
        off = sorted(one.off_blocks for one in chosen if one.seconds is not None)
        if times:
            lines.append(
                f"{kind:<12} {len(times)} of {len(chosen)}, median {times[len(times) // 2] / 60:.0f} min, "
                f"onset off by {off[len(off) // 2]:.1f} blocks"
            )
    return "\n".join(lines)


# -- real runs


def real_runs(*, schedule: bool) -> list[tuple[str, list[float]]]:
    """Step times of public runs, by program: of those that change their own step time, or of the others."""
    runs = json.loads(lzma.decompress(REAL.read_bytes()))
    return [
        (one["program"], [max(1, after - before) / 1000 for before, after in pairwise(one["ms"])])
        for one in runs
        if one["schedule"] is schedule
    ]


def blocks_of_eight(seconds: Iterable[float]) -> list[StepSample]:
    """These steps so long that eight make a block: the detector has no clock."""
    samples, at = [], START
    for step, one in enumerate(seconds, 1):
        at += 100 * one
        samples.append(StepSample(at, step, 1, 100 * one))
    return samples


def planted(seconds: Sequence[float], first: int, size: float) -> list[float]:
    """These steps, slower by `size` from number `first` on."""
    return [one * (1 + size) if number >= first else one for number, one in enumerate(seconds)]


def poisson_upper(count: int) -> float:
    """The upper end of the 95 % interval of the mean, where `count` were seen (97.5 % one-sided)."""
    low, high = float(count), 10.0 + 3.0 * count
    for _ in range(60):
        middle = (low + high) / 2
        if _poisson_at_most(count, middle) > 0.025:
            low = middle
        else:
            high = middle
    return high


def _poisson_at_most(count: int, mean: float) -> float:
    return sum(math.exp(-mean + k * math.log(mean) - math.lgamma(k + 1)) for k in range(count + 1))
