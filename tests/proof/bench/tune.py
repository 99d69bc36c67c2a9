"""Tuning: how many launches it takes on hosts and workloads that nobody has tuned, and whether it ever does harm.

`python -m tests.proof.bench.tune` plays each host (simulated_host.py) with each way to choose the next size, prints a
table and judges what tpuwatch decides: it ends with 1 when a target is missed. No time is measured: it prints the
same each time.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from tests.proof.bench.figures import FULL, Figure, heading, row, summary
from tests.proof.bench.simulated_host import World, random_world
from tests.proof.bench.simulated_launch import TunedHost
from tpuwatch.model.causes import Cause
from tpuwatch.model.tune import Bounds
from tpuwatch.tune.policy import decide

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.proof.bench.figures import Bench
    from tpuwatch.model.launches import Launch
    from tpuwatch.model.tune import TuneHost

    Choice = tuple[int | None, int | None]  # size and threshold; None: left to libtpu
    Policy = Callable[[World, Sequence[Launch], TuneHost], Choice]

LAUNCHES = 20  # of each host by each policy: long enough to see one change its mind
BOUNDS = Bounds()  # as the configuration's defaults are
MEMORY_FAULTS = frozenset({Cause.PREMAPPED_EXHAUSTED.value, Cause.HOST_OOM.value, Cause.INIT_FAILED.value})
UNUSED = frozenset({Cause.TPU_IN_USE.value, Cause.INTERRUPTED.value})  # the launch was ended before it transferred


def always_default(_world: World, _launches: Sequence[Launch], _host: TuneHost) -> Choice:
    """Set nothing."""
    return None, None


def double_on_failure(_world: World, launches: Sequence[Launch], _host: TuneHost) -> Choice:
    """As people do it: keep what is set, and double it when there was no room."""
    last = launches[-1] if launches else None
    if last is None or last.premapped_bytes is None:
        return None, None
    return last.premapped_bytes * (2 if last.premapped_failures else 1), None


def tuned(_world: World, launches: Sequence[Launch], host: TuneHost) -> Choice:
    """As tpuwatch decides."""
    decision = decide(launches[-BOUNDS.window :], host, BOUNDS)
    return decision.size_bytes, decision.threshold_bytes


def oracle(world: World, _launches: Sequence[Launch], _host: TuneHost) -> Choice:
    """Who knows the truth."""
    return _best(world)


@cache
def _best(world: World) -> Choice:
    return world.best(bound(world))


@cache
def possible(world: World) -> tuple[bool, bool]:
    """Whether a size that is allowed does both, and whether one works at all."""
    allowed = world.sizes(bound(world))
    return any(world.is_good(size, surely=True) for size in allowed), any(map(world.works, allowed))


OWN = "tpuwatch"
POLICIES: dict[str, Policy] = {
    "always the default": always_default,
    "double on failure": double_on_failure,
    OWN: tuned,
    "oracle": oracle,
}


def bound(world: World) -> int:
    """The largest buffer that is allowed."""
    host = world.machine.host
    share = int((host.total_bytes or 0) * BOUNDS.memory_share) - host.taken_bytes
    return max(BOUNDS.min_bytes, min(BOUNDS.max_bytes, share))


@dataclass(frozen=True, slots=True)
class Course:
    """What became of one host."""

    both: bool  # whether a size that is allowed works and is fast
    one: bool  # whether a size that is allowed works
    easy: bool  # whether libtpu's default does both
    good: bool  # the last choice works, is fast, and transfers are not slower than by default
    works: bool  # the last choice does
    worse: bool  # than the default would be
    until: int  # the launch from which on every choice was good, of those that used the buffer at all
    beyond: int  # launches with a buffer that was not allowed
    lost: int  # launches that a buffer too small or too large has ended


def play(seed: int, policy: Policy, launches: int = LAUNCHES) -> Course:
    """One host, from what its operator had guessed to the last choice."""
    rng = random.Random(seed)
    world = random_world(rng)
    host = TunedHost(world, rng)
    for guess in world.guesses:
        host.launch(guess, by_operator=True)
    choices: list[Choice] = []
    used: list[bool] = []
    beyond = lost = 0
    for _ in range(launches):
        choice = policy(world, host.launches, world.machine.host)
        choices.append(choice)
        beyond += world.size(choice[0]) > bound(world)
        faults = host.launch(*choice).faults
        used.append(UNUSED.isdisjoint(faults))
        lost += not MEMORY_FAULTS.isdisjoint(faults)
    both, one = possible(world)
    return Course(
        both=both,
        one=one,
        easy=world.is_good(None),
        good=world.is_good(*choices[-1]),
        works=world.works(*choices[-1]),
        worse=world.is_worse(*choices[-1]),
        until=_until(world, choices, used),
        beyond=beyond,
        lost=lost,
    )


def _until(world: World, choices: Sequence[Choice], used: Sequence[bool]) -> int:
    """How many launches it took to the first from which on every choice was good; one more where none is.

    Those that others have ended before they used the buffer are not counted: what is next cannot depend on them.
    """
    first = len(choices)
    while first and world.is_good(*choices[first - 1]):
        first -= 1
    return sum(used[:first]) + 1


class Record:
    """What became of all hosts under one policy. Shares are per cent."""

    def __init__(self, policy: Policy, hosts: int, first: int = 0) -> None:
        self.courses = tuple(play(seed, policy) for seed in range(first, first + hosts))
        both = [one for one in self.courses if one.both]
        hard = [one for one in both if not one.easy]
        self.good = _share([one.good for one in both])
        self.good_hard = _share([one.good for one in hard])
        self.works = _share([one.works for one in self.courses if one.one and not one.both])
        self.works_none = _share([one.works for one in self.courses if not one.one])
        self.median = float(statistics.median(_until_good(hard)))
        self.p95 = _until_good(hard)[int(0.95 * (len(_until_good(hard)) - 1))]
        self.worst = _until_good(both)[-1]
        self.worse = sum(one.worse for one in self.courses)
        self.beyond = sum(one.beyond for one in self.courses)
        self.lost = sum(one.lost for one in self.courses) / hosts

    def row(self, name: str) -> str:
        """Its line of the table."""
        median, p95 = (f"{self.median:g}", f"{self.p95}") if self.good_hard else ("-", "-")
        return (
            f"{name:<20} {self.good:5.1f}% {self.good_hard:5.1f}% {median:>7} {p95:>5} {self.worst:6}"
            f" {self.works:6.1f}% {self.works_none:5.1f}% {self.worse:6} {self.beyond:7} {self.lost:6.2f}"
        )


def _until_good(courses: Sequence[Course]) -> list[int]:
    """How many launches it took, the fewest first, where it came to something; else more than there were."""
    return sorted(one.until for one in courses if one.good) or [LAUNCHES + 1]


def _share(verdicts: Sequence[bool]) -> float:
    return 100.0 * sum(verdicts) / len(verdicts) if verdicts else 100.0


HEADING = (
    f"{'':<20} {'both':>6} {'hard':>6} {'median':>7} {'p95':>5} {'worst':>6}"
    f" {'one':>7} {'none':>6} {'worse':>6} {'beyond':>7} {'lost':>6}"
)
LEGEND = """\
both    ends without premapped failures and under 15 s, where a size that is allowed does both
hard    the same, where libtpu's default does not
median  launches until then, of those; p95 too; worst: of all. Launches that others ended at their start do not count
one     ends without premapped failures, where no size does both
none    the same by a threshold, where no size that is allowed has room for all transfers
worse   hosts that end worse than with the default; beyond: launches with more memory than is allowed
lost    launches of a host, of 20, that ended for want of the buffer or of the host's memory"""


def judged(record: Record) -> Iterator[Figure]:
    """The targets."""
    yield Figure("tuning: hosts that fit and are fast, where both can be", record.good, "%", at_least=95)
    yield Figure("tuning: the same where the default does not do", record.good_hard, "%", at_least=90)
    yield Figure("tuning: launches until then, median", record.median, "", at_most=3)
    yield Figure("tuning: the same, the worst host", record.worst, "", at_most=6)
    yield Figure("tuning: hosts that end worse than by default", record.worse, "", at_most=0)
    yield Figure("tuning: launches with more memory than is allowed", record.beyond, "", at_most=0)


def tune(bench: Bench) -> Iterator[Figure]:
    """What tpuwatch decides, on as many hosts as the scale says."""
    yield from judged(Record(tuned, bench.scale.hosts))


def main() -> int:
    """0 when every target is met, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.proof.bench.tune", description=__doc__)
    parser.add_argument("--hosts", type=int, default=FULL.hosts, metavar="N", help="how many (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="the first one's number (default: 0)")
    args = parser.parse_args()
    records = {name: Record(policy, args.hosts, args.first) for name, policy in POLICIES.items()}
    print("\n".join((HEADING, *(record.row(name) for name, record in records.items()), "", LEGEND, "")))
    figures = list(judged(records[OWN]))
    print("\n".join((heading(), *map(row, figures), summary(figures))))
    return int(not all(figure.reached for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
