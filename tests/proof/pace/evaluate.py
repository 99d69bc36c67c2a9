"""What the detector says about simulated and real loops, counted."""

from __future__ import annotations

import json
import lzma
import math
import random
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.paths import SHARED
from tests.proof.pace.loops import KINDS, PAUSE_KINDS, START, SimulatedLoop
from tpuwatch.model import SlowdownKind
from tpuwatch.progress.blocks import BLOCK_SECONDS, BLOCK_STEPS, StepSample
from tpuwatch.progress.pace import Pace, PacePoint

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

REAL: Final = SHARED / "pace" / "real_steps.json.xz"
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


class Planted(NamedTuple):
    """Slow-downs planted into real runs, of one size."""

    size: float
    told: int
    number: int
    blocks: float  # until they were told, the mean
    off: float  # blocks that the onset is off by, the mean


def real_alarms() -> tuple[int, list[str]]:
    """The blocks of all real runs without schedules, and the alarms in them."""
    blocks, found = 0, []
    for program, seconds in real_runs(schedule=False):
        blocks += len(seconds) // BLOCK_STEPS
        found += [f"{program}: {alarm}" for alarm in alarms(blocks_of_eight(seconds))[0]]
    return blocks, found


def real_planted(size: float, each: int) -> Planted:
    """Slow-downs of that size in real runs without schedules, so many in each, at random places."""
    rng = random.Random(round(1000 * size))
    told, number, blocks, off = 0, 0, 0.0, 0.0
    for _, seconds in real_runs(schedule=False):
        last = len(seconds) // BLOCK_STEPS - 60
        if last <= 60:
            continue
        for _ in range(each):
            first = rng.randrange(60, last)
            samples = blocks_of_eight(planted(seconds, BLOCK_STEPS * first, size))
            found = [one for one in alarms(samples)[0] if one.step >= BLOCK_STEPS * (first - 30) and not one.gradual]
            number += 1
            if found:
                told += 1
                at = next(sample.step for sample in samples if sample.at >= found[0].at)
                blocks += at / BLOCK_STEPS - first
                off += abs(found[0].step / BLOCK_STEPS - first)
    return Planted(size, told, number, blocks / max(1, told), off / max(1, told))


def real_explained() -> Counter[str]:
    """The alarms of real runs with schedules, each with another run of its program as the launch before."""
    counts: Counter[str] = Counter()
    programs: dict[str, list[list[float]]] = {}
    for program, seconds in real_runs(schedule=True):
        programs.setdefault(program, []).append(seconds)
    for runs in programs.values():
        if len(runs) < 2:
            continue
        for one, other in zip(runs, [*runs[1:], runs[0]], strict=True):
            found, _ = alarms(blocks_of_eight(one))
            if not found:
                continue
            _, before = alarms(blocks_of_eight(other))
            left, pace = alarms(blocks_of_eight(one), [before.points])
            counts["runs"] += 1
            counts["alarms"] += len(found)
            counts["left"] += len(left)
            counts["explained"] += len(pace.explained)
    return counts


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
