"""A message of a failure in the forms in which it stands in texts: printed, reported, typed, in code, spoken of."""

from __future__ import annotations

import itertools

import pytest

from tests.unit.whole_text import findings_in, matches_in
from tpuwatch.diagnose import RecognisedRecord, fold
from tpuwatch.logs.parse.line_kind import LineKind, kind_of
from tpuwatch.logs.parse.scan import Scanner
from tpuwatch.logs.rules.catalogue import load_catalogue

SCANNER = Scanner(load_catalogue())

# A message, and the rule that recognises it.
MESSAGES = {
    "Ran out of memory in memory space hbm": "hbm-oom-compile",
    "Ran out of memory in memory space vmem": "vmem-oom",
    "Core halted unexpectedly": "core-halted",
    "Insufficient google.com/tpu": "cluster-full",
    'There is no more capacity in the zone "us-central2-b"': "capacity",
    "Quota 'TPUV5sLitepodPerProject' exhausted": "quota",
    "SLICE_FAILURE_CHIP_DRIVER_ERROR": "slice-chip-failure",
    "Scoped allocation with size 18.00M and limit 16.00M exceeded scoped vmem limit by 2.00M": "vmem-oom",
    "Barrier timed out. Barrier_id: sync_7": "barrier-timeout",
    "TPU initialization failed": "init-failed",
    "Mosaic failed to compile TPU kernel": "invalid-program",
    "No space left on device": "disk-full",
    "libtpu.so is already in use by process 4711": "tpu-in-use",
    "Unknown command line flag 'xla_tpu_gizmo'": "bad-flag",
    "Failed to get global TPU topology": "init-failed",
}

FORMS = {
    LineKind.OUTPUT: (
        "{}",
        "RuntimeError: {}",
        "jaxlib.xla_extension.XlaRuntimeError: INTERNAL: {}",
        "ERROR: {}",
        "[rank3]: {}",
        "2026-09-01 10:11:12,345 - trainer - ERROR - {}",
        "(TrainWorker pid=4711, ip=10.0.0.7) {}",
        "Warning  FailedScheduling  12s  default-scheduler  {}",
        "I get this on our v5e slice: {}",
        "After two hours the job died with {}",
        "We are seeing {} on each of the hosts",
        "My training crashes with: {}",
        "The run fails with the error {}",
        "When I start it with eight workers I get {}",
        "the same error again: `{}`",
        "exception was: {}",
        "status: {{code: 8, message: {}}}",
    ),
    LineKind.COMMAND: (
        "$ grep -c '{}' /tmp/tpu_logs/*",
        "$ kubectl get events | grep '{}'",
        "me@vm-0:~$ grep '{}' train.log",
        "(venv) $ python scan.py --pattern '{}'",
        ">>> find(log, '{}')",
        "!grep '{}' out.txt",
        "+ gcloud logging read '{}'",
        "gcloud logging read --freshness=1d '{}'",
        "sudo journalctl -u tpu-runtime --grep '{}'",
        "kubectl logs job/train -f --since=1h | grep '{}'",
        "XLA_FLAGS=--xla_dump_to=/tmp/x python3 find.py '{}'",
        "ssh worker-0 -- grep '{}' /var/log/syslog",
        "docker logs -f trainer | grep '{}'",
        "# grep -r '{}' .",
    ),
    LineKind.CODE: (
        "    raise RuntimeError('{}')",
        '    raise ValueError(f"{}")',
        "  LOG(ERROR) << \"{}\";",
        '  return absl::InternalError("{}");',
        "    if '{}' in line:",
        "    if \"{}\" in str(error):",
        "PATTERN = '{}'",
        "    message = \"{}\"",
        "  assert '{}' in output",
        '    logging.error("{}")',
        "log.warning('{}')",
        "    expected='{}',",
        '  case "{}":',
        "    with pytest.raises(RuntimeError, match='{}'):",
        '  EXPECT_EQ(status.message(), "{}");',
        "    # {}",
        "    // {}",
    ),
    LineKind.MENTION: (
        "If your program ends with {}, use a smaller batch.",
        "If you see {}, ask for another zone.",
        "No `{}` on the others (looked through all logs)",
        "A job may end with {} when the others are late.",
        "This can lead to {} on a busy machine.",
        "To avoid {} we now wait for the others.",
        "The new check looks for {} and starts the job again.",
        "Whenever the log has {} the launcher should start again.",
        "It would be good to have a metric for {} in the dashboard.",
        "The table lists {} among the messages of the runtime.",
        "This change adds a test for {} in the parser.",
        "We propose to treat {} as fatal.",
        "The scheduler handles {} by waiting for a minute.",
        "Our guide explains what {} means for a user.",
        "Support for {} was added in the last version.",
        "The alert on {} is too loud for us.",
        "You will get {} where the mesh is too small.",
        "In that case the launcher reads {} from the events.",
    ),
}  # fmt: skip


def cases(kind: LineKind) -> list[tuple[str, str]]:
    return [(form.format(message), rule) for form, (message, rule) in itertools.product(FORMS[kind], MESSAGES.items())]


@pytest.mark.parametrize("kind", LineKind)
def test_there_are_lines_of_each_kind(kind: LineKind) -> None:
    assert len(cases(kind)) >= 150


@pytest.mark.parametrize("kind", LineKind)
def test_each_line_is_of_its_kind(kind: LineKind) -> None:
    wrong = {}
    for line, rule in cases(kind):
        found = kind_of(line, SCANNER.catalogue.rule(rule))
        if found is not kind:
            wrong[line] = found
    assert wrong == {}


@pytest.mark.parametrize("message", MESSAGES)
def test_only_what_was_printed_or_reported_is_a_finding(message: str) -> None:
    for kind, forms in FORMS.items():
        for form in forms:
            text = f"On a v5litepod-16 TPU slice:\n{form.format(message)}\n"
            found = findings_in(text.encode(), SCANNER, "note.txt")
            assert bool(found) is (kind is LineKind.OUTPUT), (text, found)


def test_of_a_jobs_own_output_only_commands_and_code_are_none() -> None:
    for kind, forms in FORMS.items():
        for form in forms:
            found = matches_in(form.format("Core halted unexpectedly").encode(), SCANNER, "job.txt")
            folded = fold((RecognisedRecord.from_match(match, "job.txt", 0.0) for match in found), of_job=True)
            assert bool(folded) is (kind in (LineKind.OUTPUT, LineKind.MENTION)), form
