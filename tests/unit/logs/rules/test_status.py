"""A status code beside a TPU has its family's cause, whatever the words, in each form in which the APIs print it."""

from __future__ import annotations

import pytest

from tests.unit.whole_text import findings_in
from tpuwatch.logs.parse.scan import Scanner
from tpuwatch.logs.rules.catalogue import load_catalogue
from tpuwatch.model.causes import Cause

SCANNER = Scanner(load_catalogue())
FAMILIES = {
    "INTERNAL": Cause.COMPILER_CRASH,
    "INVALID_ARGUMENT": Cause.INVALID_PROGRAM,
    "UNIMPLEMENTED": Cause.UNSUPPORTED_OP,
    "UNAVAILABLE": Cause.CONNECT_FAILED,
    "ABORTED": Cause.CONNECT_FAILED,
    "DEADLINE_EXCEEDED": Cause.DEADLINE_EXCEEDED,
    "RESOURCE_EXHAUSTED": Cause.HBM_OOM_RUNTIME,
    "PERMISSION_DENIED": Cause.PERMISSION_DENIED,
    "DATA_LOSS": Cause.DATA_PIPELINE_ERROR,
    "OUT_OF_RANGE": Cause.DATA_PIPELINE_ERROR,
}
FORMS = [
    "jaxlib.xla_extension.XlaRuntimeError: {code}: one thing is not another\non TPU v5e",
    "jax.errors.JaxRuntimeError: {code}: one thing is not another (TPU_0)",
    "RuntimeError: Bad StatusOr access: {code}: one thing is not another, TPU:0",
    "RuntimeError: {code}: one thing is not another, TPU:0",
    "RuntimeError: {words}: From /job:tpu_worker/replica:0/task:0:\none thing is not another",
    "tensorflow.python.framework.errors_impl.{name}Error: one thing is not another\n[[x]] /device:TPU:0",
    "Check failed: Run() == ::tensorflow::Status::OK() ({words}: From /job:tpu_worker one thing is not another)",
]


def say(form: str, code: str) -> str:
    words = code.replace("_", " ")
    return form.format(code=code, words=words.capitalize(), name=words.title().replace(" ", ""))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("code", "cause"), FAMILIES.items())
def test_a_code_has_the_cause_of_its_family(code: str, cause: Cause, form: str) -> None:
    assert [found.cause for found in findings_in(say(form, code).encode(), SCANNER, "job.txt")] == [cause]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("code", FAMILIES)
def test_beside_a_gpu_only_it_has_none(code: str, form: str) -> None:
    text = say(form, code).replace("one thing", "the CUDA kernel").replace("tpu_worker", "worker")
    text = text.replace("TPU", "GPU")
    found = [finding.cause for finding in findings_in(text.encode(), SCANNER, "job.txt")]
    assert found in ([], [Cause.UNKNOWN_FAILURE])
