"""A failure that no rule explains is said so: by its decisive line, and by nothing where anything else is known."""

from __future__ import annotations

import pytest

from tests.unit.whole_text import findings_in
from tpuwatch.logs.parse.scan import Scanner
from tpuwatch.logs.rules.catalogue import load_catalogue
from tpuwatch.model import Cause, Finding, Whose

SCANNER = Scanner(load_catalogue())
FRAME = '  File "/venv/lib/python3.12/site-packages/{package}/core.py", line 3, in run\n    it.run()\n'
TRACEBACK = "Traceback (most recent call last):\n" + FRAME.format(package="gizmo")
GIZMO = "gizmo.errors.GizmoError: the gizmo has no handle\n"
OOM = "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 9G of 8G hbm.\n"


def findings(*lines: str) -> list[Finding]:
    return findings_in("".join(lines).encode(), SCANNER, "job.txt")


@pytest.mark.parametrize(
    ("text", "line", "details"),
    [
        (TRACEBACK + GIZMO, GIZMO, {"exception": "gizmo.errors.GizmoError", "component": "gizmo"}),
        ("ValueError: too many cooks\n", "ValueError: too many cooks\n", {"exception": "ValueError"}),
        ("all is set\nAssertionError\n", "AssertionError\n", {"exception": "AssertionError"}),
        ("(Cook pid=7, ip=10.0.0.1) KeyError: 'spoon'\n", "KeyError: 'spoon'", {"exception": "KeyError"}),
        ("rpc error: code = Aborted desc = the gizmo is gone\n", None, {"status": "Aborted"}),
        ("status = StatusCode.DATA_LOSS\n", None, {"status": "DATA_LOSS"}),
        ("ERROR: (gcloud.gizmos.list) it is not there\n", None, {"component": "gcloud.gizmos.list"}),
        ("the launcher: the process exited with code 3\n", None, {"exit_status": "3"}),
        ("Command [gizmo] returned non-zero exit status 7.\n", None, {"exit_status": "7"}),
        ("make: *** [Makefile:7: gizmo] Error 2\n", None, {"exit_status": "2"}),
        ("subprocess: died with <Signals.SIGHUP: 1>\n", None, {"signal": "SIGHUP"}),
        ("killed by signal SIGUSR1\n", None, {"signal": "SIGUSR1"}),
    ],
)
def test_a_plain_failure_is_said_with_what_it_states(text: str, line: str | None, details: dict[str, str]) -> None:
    (finding,) = findings(text)
    assert finding.cause is Cause.UNKNOWN_FAILURE
    assert finding.details.items() >= details.items()
    assert finding.first.text == (line or text).rstrip()
    assert finding.remedy


@pytest.mark.parametrize(
    "text",
    [
        "step 7: error 0.25\n",
        "The process exited with code 0\n",
        "status = StatusCode.OK\n",
        "HTTP status code 200\n",
        "status_code=404 for a file that may lack\n",
        "The program exited with 0 errors and 2 warnings\n",
        "Error analysis: Done\n",
        "pip exited with status 1, falling back to uv\n",
        "retry 1 of 5 after GizmoError: it is busy\n",
        "PASSED test_a: StatusCode.NOT_FOUND\n",
        "ERROR: pip's dependency resolver does not take it into account\n",
        "fatal: not a git repository\n",
        'raise ValueError("ValueError: no")\n',
        "$ grep 'ValueError: ' gizmo.log\n",
        "If it ends with a ValueError: look at the log.\n",
        "It no longer fails with GizmoError: it was fixed in 2.0.\n",
    ],
)
def test_where_nothing_has_failed_nothing_is_said(text: str) -> None:
    assert findings(text) == []


@pytest.mark.parametrize("known", [OOM, "On our TPU the training hangs after a while.\n"])
def test_beside_anything_that_is_known_it_is_silent(known: str) -> None:
    assert Cause.UNKNOWN_FAILURE not in [finding.cause for finding in findings(known, "ValueError: too many cooks\n")]
    assert Cause.UNKNOWN_FAILURE not in [finding.cause for finding in findings("ValueError: too many cooks\n", known)]


def test_after_which_training_went_on_it_was_none() -> None:
    steps = "".join(f"step {step} loss: 0.5\n" for step in range(3))
    assert findings("jax\nValueError: too many cooks\n", steps) == []
    assert len(findings(steps, "ValueError: too many cooks\n")) == 1


def test_the_line_that_says_most_is_the_decisive_one() -> None:
    (finding,) = findings("the launcher: the process exited with code 3\n", TRACEBACK, GIZMO)
    assert finding.first.text == GIZMO.rstrip()
    assert finding.details.items() >= {"component": "gizmo", "exit_status": "3"}.items()


@pytest.mark.parametrize(
    ("beside", "of"),
    [
        ("name: GeForce GTX 1080 Ti\n", "another accelerator"),
        ("NEURON_RT is up\n", "another accelerator"),
        ("The backup of Cloud SQL:\n", "another service"),
        ("on a TPU VM\n", None),
        ("", None),
    ],
)
def test_what_is_no_tpus_is_called_so_where_it_is_certain(beside: str, of: str | None) -> None:
    (finding,) = findings(beside, "ValueError: too many cooks\n")
    assert finding.details.get("of") == of


@pytest.mark.parametrize(
    "text",
    [
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8 GiB total capacity)\n",
        "OSError: [Errno 28] No space left on device: '/data'\n",
        "jax.errors.JaxRuntimeError: INTERNAL: one thing is not another\n",
    ],
)
def test_what_counts_only_for_a_tpu_is_an_unknown_failure_without_one(text: str) -> None:
    assert [finding.cause for finding in findings(text)] == [Cause.UNKNOWN_FAILURE]


@pytest.mark.parametrize("framework", ["jax", "torch_xla"])
def test_the_framework_is_named(framework: str) -> None:
    (finding,) = findings("Traceback (most recent call last):\n", FRAME.format(package=framework), GIZMO)
    assert finding.details["framework"] == framework


def test_it_never_leads_to_an_act() -> None:
    row = Cause.UNKNOWN_FAILURE.row
    assert row.whose is Whose.NONE
    assert not any((row.fatal, row.waits, row.hangs, row.of_tpu, row.calls_for_size, row.wants_tpu))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("I run the gizmo on our TPU. It stops after a minute and cannot be started again.\n", True),
        ("## What happened\n\nThe gizmo fails on each second start.\n", True),
        ("## Bug report\n\nThe gizmo is unable to find its handle.\n", True),
        ("The gizmo fails on each second start.\n", False),  # nobody says that it happened
        ("I run the gizmo on our TPU, and it goes well.\n", False),
        ("I run the gizmo. If it fails I shall tell you.\n", False),
        ("I run this:\n```\ngizmo --fails 0\n```\nand it goes well.\n", False),  # the words are not the writer's
        ("This PR makes the gizmo wait. I run it, and it no longer fails.\n", False),
    ],
)
def test_what_a_person_reports_in_other_words_is_an_unknown_failure(text: str, found: bool) -> None:
    causes = [finding.cause for finding in findings(text)]
    assert causes == ([Cause.UNKNOWN_FAILURE] if found else [])
