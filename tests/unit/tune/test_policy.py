"""What is decided in each of many situations, and in which words."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.tune.histories import BEGIN, GIB, HOST, MIB, failed, gib, history, killed, lacked, launch
from tests.unit.tune.policy_table import ROWS, Row
from tpuwatch.model.causes import Cause
from tpuwatch.model.launches import Launch
from tpuwatch.model.tune import SUMS_VARIABLE, Bounds, SizeStep, TuneHost
from tpuwatch.tune.history import latest_runs, samples_of
from tpuwatch.tune.policy import decide


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_the_decision_and_its_reasons_in_whole_sentences(row: Row) -> None:
    decision = decide(history(*row.launches), row.host, Bounds(**row.bounds))
    size, threshold = decision.size_bytes, decision.threshold_bytes
    made = decision.step, None if size is None else size / GIB, None if threshold is None else threshold / GIB
    assert made == (row.step, row.size, row.threshold), decision.reasons
    assert row.says in " ".join(decision.reasons)
    assert row.conflict in decision.conflict
    assert bool(row.conflict) == bool(decision.conflict)
    assert decision.reasons
    for sentence in (*decision.reasons, *filter(None, [decision.conflict])):
        assert sentence[0].isupper() or sentence[0].isdigit()
        assert sentence.endswith(".")
        assert ".." not in sentence


def test_a_failure_is_reported_with_its_numbers() -> None:
    one = lacked(0.25, 572 / 1024, 0.5)
    one.started = BEGIN - 1200
    decision = decide([one], HOST, Bounds())
    assert decision.reasons == (
        "The launch of 14:02 UTC asked for 512 MiB where 196 MiB were free, in a buffer of 256 MiB: 572 MiB are "
        "needed; with 25 % headroom and rounded that is 768 MiB.",
    )
    assert decision.size_bytes == 768 * MIB
    assert decision.need_bytes == 572 * MIB
    assert decision.before_bytes == 256 * MIB


def test_what_rests_on_the_launches_is_reported() -> None:
    decision = decide(history(launch(8, 10.0), launch(16, 18.0)), HOST, Bounds())
    assert decision.ceiling_bytes == 40 * GIB
    assert decision.fit is not None
    assert decision.fast_bytes == pytest.approx(13 * GIB)
    assert decision.need_bytes is None


def test_what_still_comes_up_in_time_is_what_the_reasons_say() -> None:
    first = lacked(None, 9, 2, seconds=24.0, faults={"metadata_unreachable": 1.0, "premapped_exhausted": 90.0})
    decision = decide(history(first, launch(11.25, 24.0)), HOST, Bounds())
    assert decision.fit is None
    assert (decision.fast_bytes, "no more than 7 GiB" in decision.conflict) == (7 * GIB, True)


def test_a_size_is_on_trial_until_it_has_been_tried() -> None:
    first = history(lacked(4, 6, 3))
    assert decide(first, HOST, Bounds()).trial
    assert not decide(history(*first, launch(7.5)), HOST, Bounds()).trial
    assert not decide([], HOST, Bounds()).trial
    back = decide(history(launch(16, 17.0), lacked(8, 9, 1)), HOST, Bounds())
    assert (back.step, back.trial) == (SizeStep.BACK, False)


def test_an_overridden_size_is_judged_all_the_same() -> None:
    overrides = {"TPU_PREMAPPED_BUFFER_SIZE": str(gib(4))}
    decision = decide(history(lacked(4, 6, 3)), HOST, Bounds(overrides=overrides))
    assert decision.step is SizeStep.OVERRIDDEN
    assert decision.need_bytes == 6 * GIB
    assert any("6 GiB are needed" in reason for reason in decision.reasons)


def test_what_would_help_is_reported_with_its_source() -> None:
    decision = decide(history(lacked(20, 50)), HOST, Bounds())
    assert decision.step is SizeStep.UNSATISFIABLE
    assert [one.source.startswith("https://") for one in decision.advice] == [True, True]


def test_an_empty_size_is_libtpus_own() -> None:
    empty = launch()
    empty.premapped_bytes, empty.environment = None, {**empty.environment, "TPU_PREMAPPED_BUFFER_SIZE": ""}
    (one,) = samples_of([empty], HOST)
    assert one.size == HOST.default_bytes > 0


def test_a_size_that_was_changed_after_tpuwatch_had_set_it_is_the_operators() -> None:
    ours = launch(1)
    changed = launch(1)
    changed.environment = {**changed.environment, SUMS_VARIABLE: "00000000"}  # of another value
    assert decide([ours], HOST, Bounds()).step is SizeStep.KEEP
    made = decide([changed], HOST, Bounds())
    assert (made.step, made.size_bytes) == (SizeStep.START, None)


def _run(*launches: Launch, at: float = 0.0) -> list[Launch]:
    """Processes of one run, a moment apart, which end together."""
    for number, one in enumerate(launches):
        one.started, one.ended, one.pid = BEGIN + at + number, BEGIN + at + 900.0, 100 + number
        one.last_heard = BEGIN + at + 90.0
    return list(launches)


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize(
    ("one", "step", "says"),
    [
        pytest.param(lambda: lacked(8, 9, 1), SizeStep.GROW, "9 GiB are needed", id="no room"),
        pytest.param(lambda: killed(8), SizeStep.SHRINK, "ran out of memory", id="no memory"),
    ],
)
def test_one_process_of_a_run_speaks_for_all(place: int, one: Callable[[], Launch], step: SizeStep, says: str) -> None:
    ranks = [launch(8) for _ in range(4)]
    ranks[place] = one()
    made = decide(_run(*ranks), TuneHost("v5e", 700 * GIB), Bounds())
    assert (made.step, says in made.reasons[0]) == (step, True)


def test_after_a_run_another_one_has_its_own_say() -> None:
    first = _run(lacked(8, 9, 1), launch(8))
    assert decide([*first, *_run(launch(11.25), launch(11.25), at=1000.0)], HOST, Bounds()).step is SizeStep.KEEP
    again = launch(8)
    again.started = BEGIN + 30.0
    for one in first:
        one.ended = BEGIN + 20.0
    assert decide([*first, again], HOST, Bounds()).step is SizeStep.KEEP  # started again after the end of those


@pytest.mark.parametrize("past", [True, False], ids=["before tpuwatch ran", "since"])
def test_starts_one_after_another_are_no_run_where_nobody_saw_their_ends(past: bool) -> None:
    tries = [lacked(8, 9, 1, history=past) for _ in range(3)]
    for number, one in enumerate(tries):
        one.started = BEGIN + 15.0 * number
        one.last_heard = one.started + 12.0
    assert [one.processes for one in samples_of(tries, HOST)] == [1, 1, 1]
    worked = [launch(8, history=past, started=one.started, last_heard=one.last_heard) for one in tries]
    assert [one.processes for one in samples_of(worked, HOST)] == ([1, 1, 1] if past else [3])  # these may run yet


def test_processes_that_run_together_share_the_memory() -> None:
    alone = decide(_run(launch()), HOST, Bounds())
    four = decide(_run(*(launch() for _ in range(4))), HOST, Bounds())
    assert (alone.ceiling_bytes, four.ceiling_bytes) == (40 * GIB, 10 * GIB)
    eight = decide(_run(*(launch(8) for _ in range(8))), HOST, Bounds())
    assert (eight.step, eight.size_bytes) == (SizeStep.SHRINK, 5 * GIB)
    assert "25 % of the host's 160 GiB of memory, for 8 processes together" in eight.reasons[0]


def test_what_has_no_buffer_takes_no_share() -> None:
    beside = failed(Cause.TPU_IN_USE)
    assert decide(_run(launch(), beside), HOST, Bounds()).ceiling_bytes == 40 * GIB


def test_the_window_counts_runs_and_not_their_processes() -> None:
    short = _run(*(lacked(2, 6, 4) for _ in range(8)))
    later = [one for number in range(1, 9) for one in _run(*(launch(7.5) for _ in range(8)), at=3600.0 * number)]
    bounds = Bounds(window=10)
    assert decide([*short, *later], TuneHost("v5e", 700 * GIB), bounds).need_bytes == 6 * GIB
    assert latest_runs([*short, *later], HOST, 2) == later[-16:]


def test_one_slow_run_is_one_slow_launch_however_many_processes_it_has() -> None:
    slow = [launch(4, 17.8) for _ in range(4)]
    host = TuneHost("v5e", 700 * GIB)
    first = decide(_run(*slow), host, Bounds())
    assert (first.step, "one launch alone" in first.reasons[0]) == (SizeStep.KEEP, True)
    assert (
        decide([*_run(*slow), *_run(*(launch(4, 17.8) for _ in range(4)), at=3600.0)], host, Bounds()).size_bytes
        == 2 * GIB
    )


def test_the_first_run_after_a_boot_has_cold_caches_in_all_its_processes() -> None:
    cold = _run(*(launch(8, 25.0, boot_id="b") for _ in range(4)))
    made = decide(cold, TuneHost("v5e", 700 * GIB), Bounds())
    assert made.reasons[0].endswith("explained by something else: the first since the machine started.")


@pytest.mark.parametrize(
    ("last", "seconds"),
    [
        pytest.param(launch(8, 20.0), 13.0, id="a straggler"),
        pytest.param(launch(8, 13.5, faults={Cause.METADATA_UNREACHABLE: 3.0}), 12.0, id="one that waited"),
    ],
)
def test_a_run_took_what_its_middle_process_took(last: Launch, seconds: float) -> None:
    (one,) = samples_of(_run(launch(8, 12.0), launch(8, 13.0), last), HOST)
    assert (one.seconds, one.waited) == (seconds, "")


def test_a_run_that_lacked_room_and_memory_says_both() -> None:
    run = _run(launch(8), lacked(8, 9, 1), killed(8), lacked(8, 8.5, 0.5))
    made = decide(run, TuneHost("v5e", 700 * GIB), Bounds())
    assert (made.step, made.need_bytes) == (SizeStep.UNSATISFIABLE, 9 * GIB)
    assert "ran out of memory" in made.reasons[0]


def test_a_run_of_which_one_process_ended_early_does_not_show_that_its_size_will_do() -> None:
    ended = [launch(8), launch(8, exit_status=1)]
    for one in _run(*ended):
        one.ended = BEGIN + 100.0
    assert not any(one.proved for one in samples_of(ended, HOST))
