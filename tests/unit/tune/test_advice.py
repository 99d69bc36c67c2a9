"""The size that is decided, in the remedy of a buffer that had no room."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.unit.tune.histories import HOST, gib, history, lacked, launch
from tests.unit.whole_text import findings_in
from tpuwatch.logs.parse.scan import Scanner
from tpuwatch.logs.rules.catalogue import load_catalogue
from tpuwatch.model.events import Finding
from tpuwatch.model.launches import Launch
from tpuwatch.model.tune import Bounds, TunePlan
from tpuwatch.tune.advice import with_plans, with_sizes
from tpuwatch.tune.policy import decide

EXHAUSTED = (
    b"Allocating buffer from premapped region failed with: RESOURCE_EXHAUSTED: Attempting to allocate 544.00M. That "
    b"was not possible. There are 288.00M free.\n"
)
LACKED = {"size": 4, "need": 4.25, "asked": 544 / 1024}


def finding(text: bytes = EXHAUSTED) -> Finding:
    (found,) = findings_in(text, Scanner(load_catalogue()), "job.log", 0.0)
    return found


def plan(launches: list[Launch], workload: str = "default", **bounds: Any) -> TunePlan:
    return TunePlan(workload, 0.0, (), decide(launches, HOST, Bounds(**bounds)))


def steps(found: Finding, launches: list[Launch], *plans: TunePlan) -> list[str]:
    (advised,) = with_plans([found], launches[::-1], plans)
    return [step.do for step in advised.remedy]


def test_it_has_the_number_that_tuning_has_and_how_to_set_it() -> None:
    launches = history(lacked(**LACKED, workload="big"))
    decided = plan(launches, "big")
    assert decided.decision.size_bytes == gib(5.5)
    first, second = steps(finding(), launches, plan([], "other"), decided)
    assert first == (
        f"Raise TPU_PREMAPPED_BUFFER_SIZE to {gib(5.5)} (5.5 GiB), as a need of 4.25 GiB was seen, and start the "
        "program again: both are done by `tpuwatch exec --workload big -- COMMAND`."
    )
    assert second.startswith("Or set TPU_PREMAPPED_BUFFER_TRANSFER_THRESHOLD_BYTES")


def test_of_several_launches_it_is_the_one_that_the_finding_is_about() -> None:
    launches = history(lacked(**LACKED, workload="one", pid=1), lacked(8, 9, 1, workload="two", pid=2))
    plans = [plan(launches[:1], "one"), plan(launches[1:], "two")]
    found = finding()
    assert "--workload two" in steps(found, launches, *plans)[0]
    assert "--workload one" in steps(replace(found, last=replace(found.last, pid=1)), launches, *plans)[0]


def test_where_nothing_is_decided_the_rules_own_words_stand() -> None:
    launches = history(lacked(**LACKED))
    assert steps(finding(), launches)[0].startswith("Raise TPU_PREMAPPED_BUFFER_SIZE (bytes, a multiple of 4096)")
    assert steps(finding(), [], plan(launches)) == steps(finding(), launches)
    before = plan(history(launch(4)))  # decided before the failure was read
    assert steps(finding(), launches, before) == steps(finding(), launches)
    by_output = history(lacked())  # libtpu's log has not been read, so nothing shows the size that failed
    assert steps(finding(), by_output, plan([])) == steps(finding(), by_output)
    oom = finding(b"RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 28.00G of 15.75G hbm.\n")
    assert steps(oom, launches, plan(launches)) == [step.do for step in oom.remedy]


def test_that_no_size_would_do_is_said_in_place_of_raise_it() -> None:
    launches = history(lacked(40, 50, 10))
    first, *rest = steps(finding(), launches, plan(launches, max_bytes=gib(40)))
    assert first.startswith("No TPU_PREMAPPED_BUFFER_SIZE that is allowed would do. The launch of ")
    assert not [step for step in rest if step.startswith("Raise")]


def test_the_operators_own_size_below_libtpus_is_to_be_left_out() -> None:
    launches = history(lacked(0.25, 0.5, 0.25, own=True))
    assert steps(finding(), launches, plan(launches))[0] == (
        "Leave TPU_PREMAPPED_BUFFER_SIZE unset, which gives libtpu's own 4 GiB, as a need of 512 MiB was seen, and "
        "start the program again: both are done by `tpuwatch exec -- COMMAND`."
    )


def of_text(launches: list[Launch], known: list[Launch] = [], *plans: TunePlan) -> str:  # noqa: B006 (not changed)
    (advised,) = with_sizes([finding()], launches[::-1], known[::-1], plans)
    return advised.remedy[0].do


def test_of_a_text_it_is_what_its_launches_show() -> None:
    assert f"to {gib(5.5)} (5.5 GiB), as a need of 4.25 GiB was seen" in of_text(history(lacked(**LACKED)))
    twice = history(lacked(**LACKED), lacked(5.5, 6, 1))
    assert str(decide(twice, replace(HOST, total_bytes=1 << 50), Bounds()).size_bytes) in of_text(twice)
    found = finding()
    assert with_sizes([found], history(launch(4)), [], []) == [found]


def test_of_a_text_a_size_below_libtpus_own_was_set_by_somebody() -> None:
    """What tuning decides for the same launch where its environment is known."""
    launches = history(lacked(0.25, 0.5, 0.25, own=True, premapped_bytes=gib(0.25)))
    shown = [replace(one, environment={}) for one in launches]
    assert of_text(shown).startswith("Leave TPU_PREMAPPED_BUFFER_SIZE unset, which gives libtpu's own 4 GiB")
    on_v4 = [replace(one, environment={}, chip_kind="TPU v4") for one in launches]
    assert of_text(on_v4).startswith(f"Raise TPU_PREMAPPED_BUFFER_SIZE to {gib(0.625)} (640 MiB)")


def test_of_a_launch_that_this_machine_knows_it_is_its_workloads_plan() -> None:
    known = history(lacked(4, 5, 1, workload="big"), lacked(**LACKED, workload="big"))
    shown = [replace(known[-1], environment={}, workload="", started=known[-1].started + 1.0)]
    decided = plan(known, "big")
    (same,) = with_plans([finding()], known[::-1], [decided])
    assert of_text(shown, known, decided) == same.remedy[0].do
    assert of_text(shown, [replace(one, pid=one.pid + 1) for one in known], decided) == of_text(shown)
