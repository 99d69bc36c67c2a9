"""What holds of every history: the bounds, the same answer each time, and that it settles."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.tune.histories import GIB, MIB, failed, history, killed, lacked, launch
from tpuwatch.model.causes import Cause
from tpuwatch.model.launches import Launch, Outcome
from tpuwatch.model.tune import PAGE_BYTES, SIZE, THRESHOLD, Bounds, SizeDecision, TuneHost
from tpuwatch.tune.history import host_as_observed, latest_runs
from tpuwatch.tune.policy import decide

QUICK = settings(deadline=None, derandomize=True, database=None)
LAUNCHES = 14
SETTLED = 6  # launches after which nothing changes any more, where each shows the truth

SIZES = st.one_of(
    st.none(),
    st.sampled_from([0, 1, 4095, 4096, 1_000_000, 256 * MIB, GIB, 4 * GIB, 6 * GIB, 40 * GIB, -1, 1 << 70]),
    st.integers(0, 128 * GIB),
)
SECONDS = st.one_of(
    st.none(), st.floats(0, 200), st.sampled_from([15.0, 15.000001, -1.0, float("nan"), float("inf"), 1e300])
)
FAULTS = st.dictionaries(st.sampled_from([*(cause.value for cause in Cause), "unheard_of"]), SECONDS.filter(bool))
VALUES = st.one_of(
    st.integers(0, 1 << 40).map(str), st.sampled_from(["", "abc", "4GB", "-1", "0", " 8589934592 ", "9" * 40])
)
ENVIRONMENTS = st.dictionaries(
    st.sampled_from([SIZE, THRESHOLD, "TPUWATCH_SET", "TPU_LOG_DIR"]), st.one_of(VALUES, st.just(f"{SIZE},{THRESHOLD}"))
)
NONSENSE = st.builds(
    Launch,
    pid=st.integers(1, 9),
    started=st.one_of(st.floats(0, 2e9), st.sampled_from([0.0, -1e18, 1e18, float("nan"), float("inf")])),
    premapped_bytes=SIZES,
    premapped_threshold_bytes=SIZES,
    init_seconds=SECONDS,
    outcome=st.sampled_from(Outcome),
    cause=st.one_of(st.none(), st.sampled_from(Cause)),
    environment=ENVIRONMENTS,
    faults=FAULTS,
    premapped_failures=st.integers(-1, 3),
    premapped_need_bytes=SIZES,
    premapped_asked_bytes=SIZES,
    boot_id=st.sampled_from(["", "a", "b"]),
    ended=SECONDS,
    exit_status=st.sampled_from([None, 0, 1, 137]),
)
HOSTS = st.builds(
    TuneHost,
    generation=st.sampled_from(["", "v2", "v4", "v5e", "7x"]),
    total_bytes=st.one_of(st.none(), st.integers(0, 2000 * GIB)),
    taken_bytes=st.integers(0, 64 * GIB),
)
BOUNDS = st.builds(
    Bounds,
    min_bytes=st.integers(MIB, 16 * GIB),
    max_bytes=st.integers(MIB, 1024 * GIB),
    memory_share=st.floats(0.01, 0.9),
    init_seconds=st.floats(1.0, 60.0),
    headroom=st.floats(0.0, 4.0),
    window=st.integers(1, 60),
    power_of_two=st.booleans(),
)


def is_allowed(decision: SizeDecision, host: TuneHost, bounds: Bounds) -> bool:
    """Whether the size is none at all, or in whole pages, no more than is allowed and no less without need."""
    size = host.default_bytes if decision.size_bytes is None else decision.size_bytes
    if not size:
        return not host.default_bytes
    ceiling = decision.ceiling_bytes
    assert ceiling is not None
    rounds = (size & (size - 1)) == 0 if bounds.power_of_two else size % PAGE_BYTES == 0
    return rounds and size <= ceiling <= max(bounds.max_bytes, PAGE_BYTES) and size >= min(bounds.min_bytes, ceiling)


@pytest.mark.slow
@given(st.lists(NONSENSE, max_size=12), HOSTS, BOUNDS)
@QUICK
def test_any_history_is_decided_within_the_bounds(launches: list[Launch], host: TuneHost, bounds: Bounds) -> None:
    decision = decide(launches, host, bounds)
    host = host_as_observed(latest_runs(launches, host, bounds.window), host)
    assert is_allowed(decision, host, bounds)
    assert decision.reasons
    assert decision.threshold_bytes is None or decision.threshold_bytes > 0
    if host.total_bytes is not None and decision.size_bytes is not None:
        assert decision.size_bytes <= max(bounds.memory_share * host.total_bytes, 16 * MIB)


@given(st.lists(NONSENSE, max_size=8), HOSTS, BOUNDS, st.randoms(use_true_random=False))
@QUICK
def test_what_says_nothing_changes_nothing(
    launches: list[Launch], host: TuneHost, bounds: Bounds, rng: random.Random
) -> None:
    decision = decide(launches, host, bounds)
    others = []
    for one in launches:
        faults, environment = list(one.faults.items()), list(one.environment.items())
        rng.shuffle(faults)
        rng.shuffle(environment)
        others.append(replace(one, pid=7, user="a", chips=8, id=9, faults=dict(faults), environment=dict(environment)))
    assert repr(decide(others, host, bounds)) == repr(decision)
    assert repr(decide(tuple(launches), host, bounds)) == repr(decision)


@dataclass(frozen=True)
class Truth:
    """What a host and a workload are, which the policy does not know."""

    need: float  # GiB that are in use at most
    base: float  # seconds without a buffer
    slope: float  # seconds for each GiB
    total: int  # GiB of the host
    job: float  # GiB of memory that the job takes beside the buffer
    noise: float  # of each start, as a share
    outliers: float  # how many starts take much longer for an unknown reason
    bugs: float  # how many launches die of something else
    start: float | None  # what the first launch had, in GiB

    @property
    def host(self) -> TuneHost:
        return TuneHost("v5e", (self.total - 4) * GIB)

    def launch(self, size: float | None, threshold: float | None, rng: random.Random) -> Launch:
        """One launch, and what it shows."""
        has, given = 4.0 if size is None else size, {} if threshold is None else {"threshold": threshold}
        seconds = (self.base + self.slope * has) * (1 + rng.uniform(-self.noise, self.noise))
        seconds += rng.uniform(5, 40) if rng.random() < self.outliers else 0
        if rng.random() < self.bugs:
            return failed(Cause.TPU_IN_USE, size, **given)
        need = self.need if threshold is None else min(self.need, self.need * threshold / 8)
        if has < need:
            asked = min(need, 0.5 if threshold is None else threshold)
            return lacked(size, rng.uniform(has + 0.001, need), asked, seconds=seconds, **given)
        if has + self.job > self.total - 4:
            return killed(size, seconds=seconds, **given)
        return launch(size, seconds, **given)


TRUTHS = st.builds(
    Truth,
    need=st.floats(0.0, 48.0),
    base=st.floats(0.5, 20.0),
    slope=st.floats(0.0, 3.0),
    total=st.sampled_from([16, 64, 192, 400]),
    job=st.just(0.0),
    noise=st.just(0.0),
    outliers=st.just(0.0),
    bugs=st.just(0.0),
    start=st.sampled_from([None, None, 0.25, 1.0, 16.0]),
)
ROUGH = st.builds(
    replace,
    TRUTHS,
    job=st.floats(0.0, 400.0),
    noise=st.floats(0.0, 0.08),
    outliers=st.floats(0.0, 0.1),
    bugs=st.floats(0.0, 0.2),
)


def play(truth: Truth, seed: int) -> list[tuple[float | None, float | None]]:
    """Size and threshold of one launch after another, in GiB, each checked against the bounds."""
    rng, launches, choices = random.Random(seed), [], []
    if truth.start is not None:
        launches.append(truth.launch(truth.start, None, rng))
    for _ in range(LAUNCHES):
        decision = decide(history(*launches), truth.host, Bounds())
        assert is_allowed(decision, truth.host, Bounds())
        size, threshold = decision.size_bytes, decision.threshold_bytes
        choice = None if size is None else size / GIB, None if threshold is None else threshold / GIB
        choices.append(choice)
        launches.append(truth.launch(*choice, rng))
    return choices


TIGHT = Truth(4.0, 14.0, 1.0, 16, 0.0, 0.0, 0.0, 0.0, 0.25)  # slow with any buffer, and no memory for what is needed


@given(TRUTHS, st.integers(0, 1 << 32))
@example(TIGHT, 0)
@QUICK
def test_it_settles_within_six_launches(truth: Truth, seed: int) -> None:
    choices = play(truth, seed)
    assert len(set(choices[SETTLED:])) == 1, choices


@given(TRUTHS, st.integers(0, 1 << 32))
@QUICK
def test_it_settles_on_what_works_and_is_fast_where_both_can_be(truth: Truth, seed: int) -> None:
    size = play(truth, seed)[-1][0]
    has, most = 4.0 if size is None else size, min(64.0, truth.total / 4 - 1)
    if 1.1 * truth.need + 0.5 < most:
        assert has >= truth.need
        if truth.base + truth.slope * (1.3 * truth.need + 1) < 13.5:
            assert truth.base + truth.slope * has <= 15 * 1.031


@pytest.mark.slow
@given(ROUGH, st.integers(0, 1 << 32))
@QUICK
def test_it_does_not_go_to_and_fro(truth: Truth, seed: int) -> None:
    choices = play(truth, seed)
    changes = [choices[0], *(after for before, after in pairwise(choices) if after != before)]
    steps = list(pairwise(changes))
    assert not any(step == later for step, later in zip(steps, steps[2:], strict=False)), choices
