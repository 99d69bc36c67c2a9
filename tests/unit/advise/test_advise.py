"""The order of advice, and what it says."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2
import pytest

from tests.unit.advise.make import GIB, graph, placed, reads, row, subject, trial
from tests.unit.template_branches import Branches
from tpuwatch.advise import (
    advice_document,
    advice_page,
    advise,
    changes,
    code_advice,
    of_program,
    of_report,
    of_shapes,
    sources,
)
from tpuwatch.advise.memory import composition
from tpuwatch.core import counted
from tpuwatch.diagnose import RecognisedRecord, fold
from tpuwatch.logs import LogParser, Scanner, load_catalogue
from tpuwatch.model import AdviceDocument, Finding, Flops, Gain, NotChecked, ProfileFigures
from tpuwatch.program import target
from tpuwatch.program.preflight import Preflight

REPORT = """\
Ran out of memory in memory space hbm. Used 30.00G of 15.75G hbm. Exceeded hbm capacity by 14.25G.

Total hbm usage >= 30.00G:
    program          30.00G
    arguments        unknown size (arguments)

Program hbm requirement 30.00G:
    HLO temp         30.00G (7.8% utilization: Unpadded (2.34G) Padded (30.00G), 0.0% fragmentation (0B))

  Largest program allocations in hbm:

  1. Size: 28.00G
     Shape: s32[58720256,10]{1,0:T(8,128)}
     Unpadded size: 2.19G
     Extra memory due to padding: 25.81G (12.8x expansion)
     XLA label: copy
"""


def test_what_keeps_a_program_from_running_is_first_then_the_larger_gain() -> None:
    found = advise(
        subject(
            placed("f32[65536,100,20]"),
            trial=trial(20, counts=graph(row(8192, 4096, 4096), row(8192, 4096, 4096))),
            changed=(trial(9, change="remat"), trial(18, batch=32)),
        )
    ).found
    assert [(one.id, one.of.name) for one in found[:3]] == [
        ("memory_remat", "RUNS"),
        ("padding", "HBM"),
        ("memory_batch", "HBM"),
    ]
    gains = [one.gain for one in found[1:]]
    assert gains == sorted(gains, reverse=True)


def test_only_what_is_tight_is_compiled_again() -> None:
    assert list(changes(trial(4))) == []
    assert [(one.change, one.batch) for one in changes(trial(12, devices=4))] == [
        ("bfloat16", 64),
        ("remat", 64),
        (None, 32),
        ("spread-batch", 64),
        ("spread-all", 64),
    ]


def test_with_bfloat16_only_what_is_computed_gets_smaller() -> None:
    changed = trial(5, change="bfloat16", arguments_bytes=GIB // 2, temporaries_bytes=4 * GIB)
    (one,) = [one for one in advise(subject(trial=trial(12), changed=(changed,))).found if one.id == "memory_bfloat16"]
    assert one.figures["needed_bytes"] == (12 - (11 - 4)) * GIB


def test_memory_is_told_by_its_parts() -> None:
    tensors = (
        placed("f32[1024,1024,128]", "weights"),
        placed("f32[1024,1024,128]", "optimizer", 2),
        placed("u8[64,128]", "inputs"),
    )
    parts = {"weights": GIB // 2, "optimizer": GIB, "gradients": GIB // 2, "activations": 3 * GIB - GIB // 2}
    assert parts.items() <= composition(subject(*tensors, trial=trial(4))).items()


def test_the_first_layer_and_the_last_may_be_as_narrow_as_the_data() -> None:
    rows = (row(8192, 512, 3), row(8192, 512, 512), row(8192, 10, 512))
    found = {one.id for one in advise(subject(trial=trial(counts=graph(*rows)))).found}
    assert not found & {"matrix_shape", "narrow_layers"}


def test_the_batch_that_a_gradient_sums_over_is_no_layer() -> None:
    forward, gradient = row(64, 4096, 1024, count=999), row(1024, 4096, 64, count=999)
    found = {
        one.id for one in advise(subject(batch=None, trial=trial(batch=None, counts=graph(forward, gradient)))).found
    }
    assert not found & {"matrix_shape", "narrow_layers"}


def test_shapes_alone_are_answered_for() -> None:
    (one,) = advise(of_shapes(["bf16[20,30,5]", "bf16[32,128]"], target("v6e-1"), None)).found
    assert one.figures["padded_bytes"] == 5 * 32 * 128 * 2
    assert one.figures["nearest"] == ["bf16[32,128,5]"]
    with pytest.raises(ValueError, match="is no shape"):
        of_shapes(["hello"], target("v6e-1"), None)


def reported() -> tuple[Finding, ...]:
    parser = LogParser(Scanner(load_catalogue()), None, now=0.0, count_lines=True)  # type: ignore[arg-type]
    matches = [*parser.feed(REPORT.encode()), *parser.finish()]
    return tuple(fold(RecognisedRecord.from_match(match, "job.log", 0.0) for match in matches))


def test_a_program_that_does_not_fit_has_the_compilers_allocations_before_computed_shapes() -> None:
    same = {**row(8, 8, 8), "output": "s32[58720256,10]"}
    refused = trial(20, counts=graph(same, row(8192, 128, 128)))
    about = of_program(Preflight(target("v5e-1"), (refused,), findings=reported()))
    assert [(one.part, str(one.layout.tensor)) for one in about.tensors] == [
        ("reported", "s32[58720256,10]"),
        ("computed", "bf16[1,8192,128]"),
    ]
    assert "as s32[10,58720256] it takes 3.5 GiB" in next(one.change for one in advise(about).found)


def test_the_allocations_of_a_report_of_too_little_memory() -> None:
    (one,) = advise(of_report(reported(), target("v5e-1"))).found
    assert one.id == "padding"
    assert one.figures["padded_bytes"] == 28 << 30
    assert "as s32[10,58720256] it takes 3.5 GiB" in one.change


def test_a_line_of_code_is_told_with_its_file_also_where_it_is_imported(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("from data.pipeline import make\nmake()\n")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "__init__.py").write_text("")
    (tmp_path / "data" / "pipeline.py").write_text(
        "import tensorflow as tf\n\ndef make():\n    return tf.data.Dataset.from_generator(f, s)\n"
    )
    files = sources(tmp_path / "train.py", tmp_path)
    (one,) = code_advice(files).found
    assert one.place == {"file": str(tmp_path / "data" / "pipeline.py"), "line": 4}


def test_a_source_that_is_no_python_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_bytes(b"def \xff(:\n\x00")
    assert code_advice(sources(path, tmp_path)).found == ()


def test_the_page_is_whole_and_shows_nothing_as_markup() -> None:
    about = subject(
        placed("f32[65536,100,20]"), trial=trial(counts=graph(row(8192, 64, 64), row(8192, 64, 96), row(8, 9, 10)))
    )
    result = advice_document(target("v5e-8"), about, advise(about))
    page = advice_page(AdviceDocument(subject="<script>alert(1)</script>", results=(result,)))
    assert "<script" not in page
    assert "http" not in page.replace("https://docs.cloud.google.com", "").replace("https://openxla.org", "")
    plots = [ET.fromstring(text + "</svg>") for text in _svgs(page)]  # noqa: S314 (our own)
    assert len(plots) == 3
    assert any(plot.find(".//circle") is not None for plot in plots)


@pytest.fixture
def branches(monkeypatch: pytest.MonkeyPatch) -> Branches:
    """Of the page of advice."""
    found = Branches()
    make = jinja2.Environment

    def watched(**options: Any) -> jinja2.Environment:
        environment = make(**options)
        found.watch(environment)
        return environment

    monkeypatch.setattr("jinja2.Environment", watched)
    return found


def test_every_section_of_the_page_is_rendered_with_and_without_content(branches: Branches) -> None:
    wide = trial(counts=graph(row(8192, 64, 64), row(8192, 64, 96), row(8, 9, 10)))
    about = subject(placed("f32[65536,100,20]"), trial=wide)
    full = advice_document(target("v5e-8"), about, advise(about))
    assert full.findings
    advised = replace(full.findings[0], gain=0.2, place={"file": "train.py", "line": 3})
    profile = ProfileFigures("TPU v5e", 1, 2, 0.1, 0.2, 0.5, None, None, None, None, None, None)
    bare = replace(
        full,
        batch=None,
        fits=False,
        memory={},
        roofline=None,
        profile=replace(profile, step_seconds=None),
        tensors=(),
        findings=(),
        checked=(),
        not_checked=(NotChecked(("padding",), "No shapes are known."), NotChecked((), "Nothing was compiled.")),
    )
    some = Flops(None, None, 1 << 40, {"ragged_dot": 2, "custom_call": 1})
    for result in (
        full,
        replace(
            full,
            profile=profile,
            corrected=("The step took longer.",),
            findings=(advised, replace(advised, gain=0.0, place=None)),
        ),
        replace(bare, flops=some),
        replace(bare, flops=replace(some, matrix_flops_at_least=None), checked=("padding",)),
        replace(bare, flops=None),
    ):
        page = advice_page(AdviceDocument(subject="train:step", results=(result,)))
        assert page.rstrip().endswith("</html>")
    assert branches.known
    assert sorted(branches.known - branches.taken) == []


def _svgs(page: str) -> list[str]:
    return [part.partition("</svg>")[0] for part in page.replace("<svg", "\0<svg").split("\0")[1:]]


def test_what_compiled_is_not_looked_for_in_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("import tensorflow as tf\n@tf.function\ndef step(x):\n    return tf.where(x)\n")
    code = code_advice([path])
    assert [one.id for one in advise(subject(), code).found] == ["dynamic_shape"]
    compiled = subject(trial=trial(counts=graph(row(8192, 4096, 4096))))
    assert "dynamic_shape" not in {one.id for one in advise(compiled, code).found}


def test_a_convolution_and_the_gradient_of_its_input_are_one_layer() -> None:
    first = {**row(8192, 64, 27), "op": "convolution", "features": [3, 64], "window": 9, "images": 8}
    back = {**row(8192, 3, 576), "op": "convolution", "features": [64, 3], "window": 9, "images": 8}
    wide = {**row(8192, 128, 576), "op": "convolution", "features": [64, 128], "window": 9, "images": 8}
    (one,) = [
        one
        for one in advise(subject(batch=None, trial=trial(batch=None, counts=graph(first, back, wide)))).found
        if one.id == "narrow_layers"
    ]
    assert one.figures["features"] == [64]


def test_without_all_flops_no_advice_rests_on_them() -> None:
    rows = (reads("bf16[4096,4096]", row(8, 4096, 4096, count=20_000)), row(8192, 48, 48), row(8192, 48, 96, passes=6))
    tensors = (placed("bf16[4096,4096]"), placed("f32[64,4096,4096,3]", "inputs", batch_side=0))
    whole = advise(subject(*tensors, trial=trial(2, counts=graph(*rows))))
    assert {"larger_batch", "input_rate"} <= {one.id for one in whole.found}
    part = advise(
        subject(*tensors, trial=trial(2, counts=graph(*rows, not_counted={"custom_call tpu_custom_call": 2})))
    )
    resting = {"larger_batch", "input_rate", "matrix_shape", "narrow_layers", "precision", "memory_bound", "depthwise"}
    assert not resting & {one.id for one in part.found}
    assert set(part.not_checked["FLOPs are not counted of custom_call tpu_custom_call"]) == resting


def test_what_was_checked_and_what_was_not_is_told(tmp_path: Path) -> None:
    path = tmp_path / "input.py"
    path.write_text("import jax\n")
    about = of_shapes(["f32[8,128]"], target("v6e-1"), None)
    advised = advise(about, code_advice([path]))
    assert advised.found == []
    assert {"padding", "callback", "dynamic_shape"} <= set(advised.checked)
    reasons = {name: reason for reason, names in advised.not_checked.items() for name in names}
    assert reasons["batch_multiple"] == reasons["batch_norm"] == "no batch is given (--batch)"
    assert reasons["input_rate"] == reasons["matrix_shape"] == "no program was compiled"
    assert reasons["prefetch"] == "no source that was read imports TensorFlow"


def test_a_file_of_another_framework_is_not_checked(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("import torch\nimport torch_xla.core.xla_model as xm\n")
    read = code_advice([path])
    assert read.checked == ()
    assert "train.py: no rule is for lines of torch, torch_xla" in read.not_checked


def test_a_file_that_is_imported_and_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import jax\nimport data\n")
    (tmp_path / "data.py").write_text("def f(:\n")
    read = code_advice(sources(tmp_path / "train.py", tmp_path))
    assert [reason for reason in read.not_checked if reason.startswith("data.py could not be read: line 1")]


KERAS = (
    placed("f32[16384,65536]", "weights", 2),
    placed("f32[16384,65536]", "optimizer", 4),
    placed("u8[64,128]", "inputs"),
)


def test_where_weights_alone_are_too_large_no_batch_fits(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("import keras\nm.compile(optimizer='adam')\n")
    about = subject(*KERAS, trial=trial(30, memory_space="hbm"), changed=(trial(25, batch=32),))
    found = advise(about, code_advice([path])).found
    assert (found[0].id, found[0].of) == ("no_batch_fits", Gain.RUNS)
    assert found[0].figures["held_bytes"] == 24 * GIB
    assert not {"memory_batch", "steps_per_execution"} & {one.id for one in found}


def test_without_an_input_that_is_known_weights_may_be_the_batch() -> None:
    assert "no_batch_fits" not in {one.id for one in advise(subject(*KERAS[:2], trial=trial(30))).found}


def test_changes_that_cannot_help_are_not_compiled() -> None:
    assert list(changes(trial(20, memory_space="vmem"))) == []
    weights = {
        "path": "w",
        "dtype": "float32",
        "shape": [16384, 65536 * 5],
        "bytes": 0,
        "part": "weights",
        "batch_side": None,
    }
    inputs = {**weights, "shape": [64, 8], "part": "inputs"}
    assert [(one.change, one.batch) for one in changes(trial(30, tensors=(weights, inputs)))] == [
        ("bfloat16", 64),
        ("remat", 64),
    ]


@pytest.mark.parametrize(
    ("generation", "chips", "slices", "devices"),
    [("v5e", 1, 1, 1), ("v6e", 8, 1, 8), ("v5e", 16, 1, 4), ("v5e", 8, 2, 4), ("v3", 4, 1, 8), ("7x", 4, 1, 8)],
)
def test_a_host_feeds_the_devices_that_it_has(generation: str, chips: int, slices: int, devices: int) -> None:
    given = (placed("f32[4096,4096]"), placed("f32[64,1024,1024,3]", "inputs", batch_side=0))
    counts = trial(2, counts=graph(row(64, 4096, 4096)))
    about = subject(*given, generation=generation, chips=chips, slices=slices, trial=counts)
    assert about.devices_of_host == devices
    (rate,) = (one.number for one in advise(about).found if one.id == "input_rate")
    assert f"for {counted(devices, 'device')} of a host" in rate


def test_an_op_of_a_dynamic_shape_that_was_compiled_keeps_nothing_from_running() -> None:
    kernels = {"counts": {"Where": 1}, "without": []}
    assert [one.of for one in advise(subject(kernels=kernels)).found] == [Gain.RUNS]
    compiled = advise(subject(kernels=kernels, trial=trial(counts=graph(row(8192, 4096, 4096))))).found
    assert [one.of for one in compiled if one.id == "dynamic_op"] == [Gain.TIME]


@pytest.mark.parametrize("integers", [0, 2])
def test_with_bfloat16_what_is_kept_in_float32_counts_though_no_code_was_made(integers: int) -> None:
    figures = {
        "outputs_bytes": 4 * GIB,
        "shared_bytes": 4 * GIB,
        "arguments_bytes": 4 * GIB,
        "temporaries_bytes": 8 * GIB,
    }
    tensors = [{"dtype": "float32", "bytes": (4 - integers) * GIB}, {"dtype": "int32", "bytes": integers * GIB}]
    # Arguments of 4 GiB, of which float32 is halved, and 5 GiB of all that is computed.
    half = 5 + 4 - (4 - integers) / 2
    changed = trial(half, change="bfloat16", temporaries_bytes=None, arguments_bytes=None, outputs_bytes=None)
    about = subject(trial=trial(12, tensors=tensors, **figures), changed=(changed,))
    (one,) = [one for one in advise(about).found if one.id == "memory_bfloat16"]
    assert one.figures["needed_bytes"] == 9 * GIB
