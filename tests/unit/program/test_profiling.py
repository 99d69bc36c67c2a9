"""A profile: which files are read, what the figures are, and which findings they give."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tpuwatch.core import ConfigError
from tpuwatch.model import ProfileFigures
from tpuwatch.program import ChildLimits, find_profile, profile_command, read_profile
from tpuwatch.program.profiling import ProfileError, figures_of, profile_findings

TRACE = b"\x0a\x07\x12\x01p\x1a\x02\x22\x00"  # a plane named p, with a line that has an event
LIMITS = ChildLimits(60.0, 1 << 34)
WELL = ProfileFigures(
    hardware="TPU v5e",
    hosts=1,
    steps=10,
    step_seconds=0.1,
    slowest_seconds=0.11,
    input_share=0.01,
    host_share=0.02,
    compile_share=0.0,
    transfer_share=0.0,
    other_share=0.01,
    idle_share=0.02,
    mxu_share=0.6,
)


def step(number: int, **times: float) -> dict[str, Any]:
    usual = {"deviceComputeTimeMs": 80.0, "infeedTimeMs": 10.0, "compileTimeMs": 0.0, "otherTimeMs": 10.0}
    return {"stepnum": str(number), "tooltip": "", **usual, **times}


def tables(*steps: dict[str, Any], **properties: Any) -> dict[str, Any]:
    operation = {"operation": "dot", "type": "Dot", "host_or_device": "Device", "device_total_self_time_percent": 0.7}
    idle = {**operation, "type": "IDLE", "operation": "IDLE"}
    return {
        "overview_page": [
            {"properties": {"device_core_count": "4", "hardware_type": "TPU v5e", **properties}, "rows": []},
            {"properties": {}, "rows": list(steps)},
        ],
        "input_pipeline_analyzer": [
            {"properties": {}, "rows": [{"opName": "Map", "category": "Preprocessing", "selfTimeInPercent": 0.9}]}
        ],
        "framework_op_stats": [{"properties": {}, "rows": [idle, operation]}],
    }


def test_shares_are_of_all_steps_time() -> None:
    figures = figures_of(
        tables(
            step(0),
            step(1, infeedTimeMs=110.0),
            device_idle_time_percent="12.5%",
            mxu_utilization_percent="30%",
            input_conclusion="It is <a href='x'>slow</a>.",
        )
    )
    assert (figures.steps, figures.step_seconds, figures.slowest_seconds) == (2, pytest.approx(0.15), 0.2)
    assert (figures.input_share, figures.other_share) == (0.4, pytest.approx(20 / 300))
    assert (figures.idle_share, figures.mxu_share) == (0.125, 0.3)
    assert [(one.name, one.share) for one in figures.operations] == [("dot", 0.7)]
    assert figures.conclusion == "It is slow."


def test_without_a_device_nothing_is_said_of_one() -> None:
    figures = figures_of(tables(step(0), device_core_count="0", device_idle_time_percent="0.0%"))
    assert (figures.idle_share, figures.mxu_share) == (None, None)


def test_a_tpus_steps_are_read_by_xprofs_columns() -> None:
    columns = {"tcComputeTimeMs": 60.0, "tcInfeedTimeMs": 10.0, "tcOutfeedTimeMs": 5.0, "tcIdleTimeMs": 20.0}
    steps = [{"stepnum": str(number), **columns, "hostTransferTimeMs": 5.0} for number in range(3)]
    read = tables(*steps, hardware_type="TPU", device_type="TPU v5 lite", mxu_utilization_percent="0.0%")
    read["categories"] = {"picoseconds": {"convolution fusion": 30, "data formatting": 10}, "flops_share": 0.2}
    figures = figures_of(read)
    assert (figures.hardware, figures.step_seconds) == ("TPU v5 lite", pytest.approx(0.1))
    assert (figures.input_share, figures.transfer_share) == (0.1, 0.1)
    assert figures.mxu_share == 0.2  # by the FLOPs: this trace has no counters
    assert figures.categories == (("convolution fusion", 0.75), ("data formatting", 0.25))


def test_without_counters_and_flops_nothing_is_said_of_the_matrix_units() -> None:
    assert figures_of(tables(step(0), mxu_utilization_percent="0.0%")).mxu_share is None


def test_a_program_that_does_well_has_no_findings() -> None:
    assert list(profile_findings(WELL)) == []


@pytest.mark.parametrize(
    ("change", "name", "words"),
    [
        ({"input_share": 0.3}, "waits_for_input", "30% of the steps' time is spent waiting"),
        ({"idle_share": 0.25}, "device_idle", "idle for 25%"),
        ({"other_share": 0.2}, "between_steps", "20% of the steps' time is Python"),
        ({"mxu_share": 0.1}, "low_mxu", "used for 10%"),
        ({"compile_share": 0.05}, "compiles", "5% of the steps' time is spent compiling"),
        ({"slowest_seconds": 0.3}, "uneven_steps", "3.0 times the mean of 100.0 ms"),
        ({"steps": 0}, "no_steps", "marks no steps"),
        ({"transfer_share": 0.1}, "host_transfers", "10% of the steps' time the device passes values"),
        ({"categories": (("all-reduce", 0.5), ("fusion", 0.5))}, "collectives", "49% of the time exchanging"),
        ({"categories": (("data formatting", 0.2), ("fusion", 0.8))}, "data_formatting", "20% of the time copying"),
    ],
)
def test_each_number_beyond_its_bound_is_a_finding(change: dict[str, Any], name: str, words: str) -> None:
    (finding,) = profile_findings(replace(WELL, **change))
    assert finding.name == name
    assert words in finding.summary
    assert finding.remedy[0].source.startswith("https://")


def test_the_largest_comes_first() -> None:
    found = profile_findings(replace(WELL, input_share=0.2, idle_share=0.5))
    assert [one.name for one in found] == ["device_idle", "waits_for_input"]


def test_of_a_directory_the_newest_profile_is_read_whole(tmp_path: Path) -> None:
    for name, when in (("old/a", 100), ("new/b", 300), ("new/a", 200)):
        path = tmp_path / "plugins" / "profile" / f"{name}.xplane.pb"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (when, when))
    assert [path.name for path in find_profile(tmp_path)] == ["a.xplane.pb", "b.xplane.pb"]
    assert {path.parent.name for path in find_profile(tmp_path)} == {"new"}


@pytest.mark.parametrize(("name", "words"), [("", "holds no profile"), ("x.txt", "is no trace"), ("y", "no such file")])
def test_what_is_no_profile_is_refused_with_a_sentence(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "x.txt").touch()
    with pytest.raises(ConfigError, match=words):
        find_profile(tmp_path / name)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (
            "out.write(json.dumps({'error': {'kind': 'trace', 'message': 'bad wire'}}))",
            r"damaged, or no trace \(bad wire",
        ),
        ("out.write(json.dumps({'error': {'kind': 'interpreter', 'message': 'no xprof'}}))", "--python"),
        ("out.write(json.dumps({'tables': {'overview_page': None}}))", "damaged"),
        ("out.write(json.dumps({'tables': {'overview_page': []}}))", "nothing of .* that is known"),
        ("out.write('garbage')", "no report|damaged"),
        ("os.abort()", "damaged"),
    ],
)
def test_what_xprof_cannot_read_is_said_and_the_original_is_untouched(tmp_path: Path, script: str, words: str) -> None:
    trace = tmp_path / "in" / "a.xplane.pb"
    trace.parent.mkdir()
    trace.write_bytes(TRACE)
    child = tmp_path / "child.py"
    head = "import json, os, sys\nrequest = json.loads(sys.argv[1])\nout = os.fdopen(request['report'], 'w')\n"
    child.write_text(
        f"{head}open(request['files'][0] + '.cache', 'w').close()\n{script}\nout.write('\\n')\nout.close()"
    )
    with pytest.raises(ProfileError, match=words):
        read_profile([trace], command=[sys.executable, str(child)], limits=LIMITS, environ={}, on_stage=lambda _: None)
    assert [one.name for one in trace.parent.iterdir()] == ["a.xplane.pb"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 1000,
        b"this is no trace\n" * 100,
        b"\nhello\n" + b"x" * 200,
        bytes(range(256)),
        TRACE[:-1],
        TRACE + b"\n\x7f",
        b"\x0a\x03\x12\x01p",  # a plane without lines
        b"\x0a\x05\x12\x01p\x1a\x00",  # a line without events
        b"\x22\x01h",  # a host alone
    ],
)
def test_what_is_no_trace_is_refused_before_xprof_sees_it(tmp_path: Path, content: bytes) -> None:
    trace = tmp_path / "a.xplane.pb"
    trace.write_bytes(content)
    with pytest.raises(ProfileError, match="is no profile"):
        read_profile([trace], command=["/none"], limits=LIMITS, environ={}, on_stage=lambda _: None)


def test_an_interpreter_without_xprof_is_named(tmp_path: Path) -> None:
    trace = tmp_path / "a.xplane.pb"
    trace.write_bytes(TRACE)
    with pytest.raises(ProfileError, match=r"cannot import xprof.*--python"):
        read_profile(
            [trace], command=profile_command(sys.executable), limits=LIMITS, environ={}, on_stage=lambda _: None
        )
