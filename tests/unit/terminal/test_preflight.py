"""What a person reads of a preflight."""

from __future__ import annotations

import io
from typing import Any

from tpuwatch.terminal import Console
from tpuwatch.terminal.preflight import print_preflight

GIB = 1 << 30


def trial(batch: int = 8, *, fits: bool = True, unfinished: str | None = None) -> dict[str, Any]:
    sizes = dict.fromkeys(
        ("arguments", "outputs", "shared", "temporaries", "code"), GIB if unfinished is None else None
    )
    return {
        "batch": batch,
        "fits": fits,
        "needed_bytes": 4 * GIB,
        "available_bytes": 16 * GIB,
        "devices": 1,
        "sharded": False,
        "compile_seconds": 2.0,
        "message": "",
        "memory_space": None if fits else "hbm",
        "unfinished": unfinished,
        **{f"{name}_bytes": size for name, size in sizes.items()},
    }


def shown(*trials: dict[str, Any], largest: int | None = None, problem: dict[str, Any] | None = None) -> str:
    result = {
        "tpu": "v5e-1",
        "topology": "v5e:1x1",
        "fits": None if problem is not None else trials[-1]["fits"],
        "largest_batch": largest,
        "trial": trials[-1] if trials else None,
        "trials": list(trials),
        "findings": [],
        "problem": problem,
    }
    out = io.StringIO()
    print_preflight(Console(out), {"function": "train:step", "python": "python3", "results": [result]})
    return out.getvalue()


def test_a_program_whose_code_was_not_made_is_said_to_be_so() -> None:
    text = shown(trial(unfinished="it took longer than 60 s (--timeout)"))
    assert "its code was not made (it took longer than 60 s (--timeout))" in text
    assert "Arguments" not in text
    assert "its code was not made" not in shown(trial())


def test_a_refusal_that_is_not_for_hbm_says_nothing_of_hbm() -> None:
    text = shown(
        {**trial(fits=False), "memory_space": "vmem", "needed_bytes": None, "available_bytes": None, "message": "no"}
    )
    assert "with batch 8 does not fit: VMEM" in text
    assert "HBM" not in text.split("COMPILED")[1]
    assert "GiB" not in text


def test_the_largest_batch_is_the_largest_only_where_one_was_refused() -> None:
    assert "fits with batch 8 and with no larger one" in shown(trial(16, fits=False), trial(8), largest=8)
    text = shown(trial(8), largest=8)
    assert "no larger one" not in text
    assert "(--max-batch)" in text


def test_the_traceback_of_a_mistake_that_is_shown_already_is_left_out() -> None:
    problem = {"kind": "program", "stage": "trace", "message": "KeyError: 'w'", "output": "Traceback\n  front.py\n"}
    assert "front.py" not in shown(problem={**problem, "place": {"file": "train.py", "line": 7}})
    assert "front.py" in shown(problem={**problem, "place": None})


def test_lines_that_a_program_printed_are_cut() -> None:
    problem = {"kind": "limit", "stage": "trace", "message": "it printed too much", "place": None}
    assert max(map(len, shown(problem={**problem, "output": "x" * 2000}).splitlines())) < 300
