from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.logs.oom_reports import cgroup_report, log
from tests.unit.whole_text import findings_in, matches_in
from tpuwatch import diagnose
from tpuwatch.diagnose import RecognisedRecord, fold, stream_kind
from tpuwatch.logs.parse.match import Repeats
from tpuwatch.logs.parse.parser import LogParser, StreamKind
from tpuwatch.logs.parse.scan import Scanner
from tpuwatch.logs.rules.catalogue import load_catalogue
from tpuwatch.model.causes import Cause
from tpuwatch.model.events import CauseConfidence, Finding

SCANNER = Scanner(load_catalogue())
NOW = 1_790_000_000.0
OOM = (
    "RESOURCE_EXHAUSTED: Error allocating device buffer: "
    "Attempting to allocate 9.00M. That was not possible. There are 7.00M free.\n"
)
STEP = "completed step: {step}, seconds: 1.5, loss: {loss}\n"


def findings(*lines: str, name: str = "job.txt") -> list[Finding]:
    return findings_in("".join(lines).encode(), SCANNER, name, NOW)


def causes(*lines: str) -> list[Cause]:
    return [finding.cause for finding in findings(*lines)]


def test_a_finding_has_what_where_and_what_to_do() -> None:
    (finding,) = findings("Starting.\n", "Still well.\n", OOM, "INFO: more\n", OOM.replace("9.00M", "8.00M"))
    assert finding.cause is Cause.HBM_OOM_RUNTIME
    assert finding.count == 2
    assert finding.line == 3
    assert finding.first.text.startswith("RESOURCE_EXHAUSTED")
    assert finding.last.offset > finding.first.offset
    assert finding.first.file == "job.txt"
    assert finding.details["requested_bytes"] == 9 * 2**20
    assert finding.summary == "HBM is full: 9 MiB was asked for and 7 MiB is free."
    assert finding.remedy[0].source.startswith("https://")


@pytest.mark.parametrize(
    ("first", "symptom", "order"),
    [
        (
            "The TPU is already in use by process with pid 4711.\n",
            "A Google TPU may be present on this machine, but libtpu is not installed. Falling back to cpu.\n",
            [Cause.TPU_IN_USE, Cause.NO_TPU_FOUND],
        ),
        (
            "Failed to fetch URL on try 6 out of 6: Timeout was reached\n",
            "TPU backend initialization is taking more than 60.0 seconds.\n",
            [Cause.METADATA_UNREACHABLE, Cause.SLOW_INIT],
        ),
        (
            "DEADLINE_EXCEEDED: Barrier timed out. Barrier_id: b\n",
            "Failed to connect to the Tensorflow master.\n",
            [Cause.BARRIER_TIMEOUT, Cause.CONNECT_FAILED],
        ),
        (
            OOM,
            "*** SIGABRT received by PID 4711 (TID 1) on cpu 1; stack trace: ***\n",
            [Cause.HBM_OOM_RUNTIME, Cause.COMPILER_CRASH],
        ),
        (
            "Potential cause: Bad TPU chips\n",
            "Core halted unexpectedly: INTERNAL\n",
            [Cause.NODE_UNHEALTHY, Cause.CORE_HALTED],
        ),
    ],
)
def test_a_cause_comes_before_its_symptom_wherever_they_stand(first: str, symptom: str, order: list[Cause]) -> None:
    gap = "Something else happens here.\n" * 3
    assert causes(first, gap, symptom) == order
    assert causes(symptom, gap, first) == order


def test_a_run_that_continues_has_no_finding() -> None:
    steps = [STEP.format(step=step, loss=2.5) for step in range(3)]
    assert causes(OOM, *steps) == []
    assert causes(OOM, steps[0]) == [Cause.HBM_OOM_RUNTIME]  # one line may have been under way
    assert causes(OOM, steps[1], steps[1]) == [Cause.HBM_OOM_RUNTIME]  # the same step, from two hosts
    assert causes(*steps, OOM) == [Cause.HBM_OOM_RUNTIME]
    assert causes(OOM, *steps, "INFO: more\n", OOM) == [Cause.HBM_OOM_RUNTIME]


def test_progress_with_a_loss_that_is_no_number_is_none() -> None:
    bad = [STEP.format(step=step, loss="nan") for step in range(3)]
    assert causes(OOM, *bad) == [Cause.HBM_OOM_RUNTIME, Cause.NUMERIC_FAULT]


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("health: UNHEALTHY_MAINTENANCE\n", Cause.MAINTENANCE),
        ("state: PREEMPTED\n", Cause.PREEMPTED),
        ("Potential cause: Bad TPU chips\n", Cause.NODE_UNHEALTHY),
        ("epoch 1 step 2, loss: nan\n", Cause.NUMERIC_FAULT),
        ("Allocating buffer from premapped region failed with: RESOURCE_EXHAUSTED\n", Cause.PREMAPPED_EXHAUSTED),
        ("No GPU/TPU found, falling back to CPU.\n", Cause.NO_TPU_FOUND),
    ],
)
def test_some_faults_stay_whatever_follows(text: str, cause: Cause) -> None:
    assert causes(text, *(STEP.format(step=step, loss=2.5) for step in range(9))) == [cause]


def test_a_missing_tpu_is_no_fault_of_a_compilation_ahead_of_time() -> None:
    missing = "W0101 01:02:03.000000    4711 v.cc:1] No hardware is found. Using default TPU version: jellyfish\n"
    compiled = "I0101 01:02:04.000000    4711 c.cc:1] CODE_GENERATION stage duration: 14ms\n"
    assert causes(missing) == [Cause.NO_TPU_FOUND]
    assert causes(missing, compiled) == []
    assert causes(compiled, missing) == []


def test_a_missing_platform_counts_from_a_warning_on() -> None:
    said = "Unable to initialize backend 'tpu': INVALID_ARGUMENT: TpuPlatform is not available."
    assert causes(f"INFO:absl:{said}\n", "I0102 03:04:05.000006 7 model.py:8] Running the model") == []
    assert causes(f"I0102 03:04:05.000006 7 xla_bridge.py:8] {said}") == []
    assert causes(f"RuntimeError: {said}") == [Cause.NO_TPU_FOUND]
    assert causes(f"INFO:absl:{said}\n", "WARNING:absl:No GPU/TPU found, falling back to CPU.") == [Cause.NO_TPU_FOUND]


def test_a_warning_of_an_older_compiler_counts_when_no_code_came_of_it() -> None:
    warning = (
        "W0101 01:02:03.000000    4711 h.cc:1] Can't reduce memory use below 10.00GiB (1 bytes) by rematerialization; "
        "only reduced to 12.00GiB (2 bytes)\n"
    )
    code = "I0101 01:02:04.000000    4711 c.cc:1] CODE_GENERATION stage duration: 14ms\n"
    end = "I0101 01:02:05.000000    4711 c.cc:2] END_TO_END stage duration: 24ms\n"
    assert causes(warning, end) == [Cause.HBM_OOM_COMPILE]
    assert causes(warning, code, end) == []
    assert causes(warning) == []


def test_a_shutdown_is_no_crash() -> None:
    assert (
        causes(
            "*** SIGTERM received by PID 4711 (TID 4711) on cpu 1, from PID 1; stack trace: ***\n",
            "PC: @ 0x1 (unknown) kill\n",
        )
        == []
    )


def test_details_of_one_fault_in_several_records_are_merged() -> None:
    (finding,) = findings(
        "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 20.00G of 15.75G hbm.\n",
        "INFO: something else\n",
        "Ran out of memory in memory space hbm. Used 20.00G of 15.75G hbm. Exceeded hbm capacity by 4.25G.\n",
        "INFO: something else\n",
        "Ran out of memory in memory space hbm. Used 90.00G of 15.75G hbm. HLO module: jit_other.\n",
    )
    assert finding.details["exceeded_bytes"] == 4.25 * 2**30
    assert finding.details["used_bytes"] == 20 * 2**30
    assert "module" not in finding.details  # another program's


def test_padding_has_its_own_remedy() -> None:
    report = "Ran out of memory in memory space hbm. Used 28.00G of 15.75G hbm.\n\nMemory Space: default (color=0)\n"
    row = "   14.00GiB(100%);   14.00GiB;            0;                1; s32[29360128,{}]\n"
    (padded,) = findings(report, row.format(10))
    (full,) = findings(report, row.format(128))
    assert "padding" in padded.remedy[0].do
    assert "padding" in padded.summary
    assert not any("padding" in step.do for step in full.remedy)


def test_slow_initialisation_is_a_finding_above_the_limit() -> None:
    line = (
        "I0101 01:02:03.000000    4711 s.cc:1] CreateTpuSystemState: TPU initialization is successful and it took {}\n"
    )
    assert causes(line.format("14.9s")) == []
    (finding,) = findings(line.format("42.5s"))
    assert (finding.cause, finding.summary) == (Cause.SLOW_INIT, "TPU initialisation took 42.5 s.")


def test_copies_of_a_record_count_once() -> None:
    record = "E0101 01:02:03.000000    4711 c.cc:1] Ran out of memory in memory space hbm. Used 20.00G of 15.75G hbm.\n"
    found = [
        RecognisedRecord.from_match(match, "a", NOW)
        for match in matches_in(record.encode(), SCANNER, "tpu_driver.h.u.log.INFO.20260101-010203.1", NOW)
    ]
    copies = [replace(record, event=replace(record.event, file="b")) for record in found if record.event]
    (finding,) = fold([*found, *copies])
    assert finding.count == 1


@pytest.mark.parametrize(
    ("beside", "found"),
    [
        ("", [Cause.UNKNOWN_FAILURE]),
        ('  File "/app/models/tpu/attention.py", line 3, in call\n', [Cause.COMPILER_CRASH]),
        ('  File "/app/models/tpu/attention.py", line 3, in call\nname: Tesla V100\n', [Cause.UNKNOWN_FAILURE]),
    ],
)
def test_code_for_tpus_names_one_where_no_other_accelerator_is_named(beside: str, found: list[Cause]) -> None:
    """As a general fault needs it: programs that can use a TPU run elsewhere too."""
    assert causes(f"{beside}jax.errors.JaxRuntimeError: INTERNAL: one thing is not another\n") == found


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("tensor on cuda:0\nKeyboardInterrupt\n", 0),
        ("tensor on cuda:0\nThe process gets killed, without output.\n", 0),
        ("name: GeForce GTX 1080 Ti\nDataLossError: corrupted record at 7\n", 0),
        ("CUDA error: illegal address\nstep 7 loss: nan\n", 0),
        ("CUDA error: illegal address\nDataLossError: corrupted output record at 7\n", 0),
        ("tensor on cuda:0, then a run on TPU v3\nKeyboardInterrupt\n", 1),
        ("name: GeForce GTX 1080 Ti\nRan out of memory in memory space hbm. Used 2.00G of 1.00G hbm.\n", 1),
        ("KeyboardInterrupt\n", 1),
        ("on our GPU machine, No GPU/TPU found, falling back to CPU.\n", 0),
        ("No GPU/TPU found, falling back to CPU.\n", 1),
        ("devices: [cuda(id=0)]\nUNAVAILABLE: Socket closed\n", 0),
        ("E 2026 gpu-image] Fatal Python error: Aborted\n", 0),
    ],
)
def test_text_about_another_accelerator_is_no_finding_unless_a_tpu_is_beside_it(text: str, count: int) -> None:
    assert len(findings(text)) == count


@pytest.mark.parametrize(
    ("beside", "found"),
    [
        ("GET https://www.googleapis.com/drive/v3/files\n", []),
        ("The backup of Cloud SQL:\n", []),
        ("The backup of Cloud SQL from our TPU VM:\n", [Cause.AUTH_SCOPE]),
        ("GET https://tpu.googleapis.com/v2/projects/p/locations/z/nodes\n", [Cause.AUTH_SCOPE]),
        ("", [Cause.AUTH_SCOPE]),
    ],
)
def test_text_about_another_service_is_no_finding_unless_a_tpu_is_beside_it(beside: str, found: list[Cause]) -> None:
    assert causes(f"{beside}Request had insufficient authentication scopes.\n") == found


def test_a_job_that_uses_another_service_can_fail_by_itself() -> None:
    assert causes("rows from BigQuery\n", OOM) == [Cause.HBM_OOM_RUNTIME]
    assert causes("rows from BigQuery\nstep 7 loss: nan\n") == [Cause.NUMERIC_FAULT]


GUIDE = "# A training on TPUs\n\n## {heading}\n\n- **Insufficient google.com/tpu**: no node is free\n"


def test_what_a_guide_lists_did_not_happen() -> None:
    assert causes(GUIDE.format(heading="Troubleshooting")) == []


@pytest.mark.parametrize(
    "report",
    [
        GUIDE.format(heading="Steps to reproduce"),
        GUIDE.format(heading="Troubleshooting") + "Traceback (most recent call last):\n",
        GUIDE.format(heading="Troubleshooting") + "E0101 01:02:03.000004 7 a.cc:1] Insufficient google.com/tpu\n",
    ],
)
def test_what_a_program_printed_did_happen_in_a_guide_too(report: str) -> None:
    assert causes(report) == [Cause.CAPACITY]


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("    print('TPU initialization failed:', error)", 0),
        ('logger.error(f"TPU initialization failed. {error}")', 0),
        ('    throw new AssertionError("Barrier timed out");', 0),
        ('    "Barrier timed out",', 0),
        ('_ERROR_TEXT = "TPU initialization failed"', 0),
        ("    # Suppress: TPU initialization failed", 0),
        ('echo "TPU initialization failed"', 0),
        ('tpu logs job | rg -i -e "traceback|TPU initialization failed|oom|device or resource busy"', 0),
        ("        ssh.Error, 'TPU initialization failed'):", 0),
        ("      NotFoundError: If no TPU devices found in eager mode.", 0),
        ('        (["TPU initialization failed"], "TPU initialization failed"),', 0),
        ('    run.return_value = Mock(stdout="", stderr="TPU initialization failed")', 0),
        ('        stderr="TPU initialization failed",', 0),
        ("        ('TPU initialization failed in zone \"a\"', Outcome.ERROR),", 0),
        ('    if [[ $result == *"TPU initialization failed"* ]]; then', 0),
        ("        if one in ['TPU initialization failed']:", 0),
        ("RuntimeError: TPU initialization failed", 1),
        ("RuntimeError('TPU initialization failed')", 1),
        ("If it goes on: `TPU initialization failed`", 1),
        ('"TPU initialization failed"', 1),
        ('  "message": "TPU initialization failed"', 1),
        ("# TPU initialization failed", 1),
        ('  stderr="TPU initialization failed"', 1),
        ("if TPU initialization failed", 0),
    ],
)
def test_a_quoted_fault_is_a_finding_and_source_code_with_its_message_is_none(line: str, count: int) -> None:
    assert len(findings(line + "\n")) == count


def test_marks_alone_are_no_findings_but_matches() -> None:
    text = "I0101 01:02:03.000000    4711 d.cc:1] Found 4 TPU v5 lite chips.\n"
    marks = {match.rule.mark: match.details for match in matches_in(text.encode(), SCANNER, "job.txt", NOW)}
    assert marks["chips"] == {"chips_count": 4, "chip_kind": "TPU v5 lite"}
    assert findings(text) == []


@pytest.mark.parametrize(
    ("name", "head", "kind"),
    [
        ("logs/tpu_driver.vm.me.log.INFO.20260101-010203.4711", b"", StreamKind.LIBTPU),
        ("copy.log", b"Log file created at: 2026/01/01 01:02:03\n", StreamKind.LIBTPU),
        ("train.log", b"Starting.\n", StreamKind.TEXT),
        ("-", b"", StreamKind.TEXT),
    ],
)
def test_stream_kind(name: str, head: bytes, kind: StreamKind) -> None:
    assert stream_kind(name, head) is kind


@pytest.mark.slow
def test_a_flood_is_counted_completely_and_kept_in_part() -> None:
    flood = b"".join(
        b"E1120 13:%02d:%02d.000000 7 a.cc:1] Allocating buffer from premapped region failed with: RESOURCE_EXHAUSTED: "
        b"Attempting to allocate %dK. That was not possible. There are 1K free.\n" % (n // 60 % 60, n % 60, n)
        for n in range(2500)
    )
    (finding,) = findings_in(flood, SCANNER, "flood")
    assert finding.count == 2500
    assert finding.last.details["requested_bytes"] == 2499 * 1024
    assert finding.first.details["requested_bytes"] == 0


FLOOD = [
    b"E1120 13:%02d:%02d.000000 7 a.cc:1] Allocating buffer from premapped region failed with: RESOURCE_EXHAUSTED: "
    b"Attempting to allocate %dK. That was not possible. There are 1K free.\n" % (n // 60 % 60, n % 60, 1000 + n)
    for n in range(3400)
]


def of_floods(*floods: list[bytes]) -> int:
    """How many records are counted of these files of libtpu's."""
    records: list[RecognisedRecord] = []
    for number, flood in enumerate(floods):
        parser = LogParser(SCANNER, StreamKind.LIBTPU, now=NOW, fold=True)
        matches = [*parser.feed(b"".join(flood)), *parser.finish()]
        assert any(match.repeats is not None for match in matches)
        records += [RecognisedRecord.from_match(match, f"{number}.log", NOW) for match in matches]
    (finding,) = fold(records)
    return finding.count


def test_of_a_flood_without_copies_no_keys_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Repeats, "keys", None)
    assert of_floods(FLOOD[:1700], FLOOD[1700:]) == len(FLOOD)


@pytest.mark.slow
@pytest.mark.parametrize("limit", ["", "_MAX_KEYS", "_MAX_UNKEYED"])
@pytest.mark.parametrize(
    "floods",
    [
        [FLOOD, FLOOD],
        [FLOOD, FLOOD[1500:]],
        [FLOOD[:3000], FLOOD[1200:]],
        [FLOOD[2000:], FLOOD[:1600], FLOOD],
        [FLOOD + FLOOD],
        [FLOOD + FLOOD[3000:3003] + FLOOD[:1200]],
    ],
)
def test_the_copies_in_floods_count_once(
    floods: list[list[bytes]], limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if limit:
        monkeypatch.setattr(diagnose, limit, 100_000 if limit == "_MAX_UNKEYED" else 3500)
    assert of_floods(*floods) == len(FLOOD)


def test_records_of_one_moment_that_differ_are_no_copies() -> None:
    at_once = [line.replace(line[6:14], b"13:00:00") for line in FLOOD[:1500]]
    assert of_floods(at_once) == len(at_once)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("On our TPU the training hangs after a while.\n", [Cause.HANG]),
        ("On our TPU the training hangs after a while.\n" + OOM, [Cause.HBM_OOM_RUNTIME]),
        ("This PR is for the TPU, where the training hangs.\n", []),
        ("On a TPU node the pod ended. Reason: OOMKilled\n", [Cause.HOST_OOM]),
        ("OOMKilled means that a pod of a TPU node took too much.\nLook for this:\nReason: OOMKilled\n", []),
        ("On our machine the training hangs after a while.\n", []),
        ("# xm.xla_device() freezes\nSeen on a `TPU`.\n", [Cause.HANG]),
        ("It works on a GPU. On the TPU the training hangs.\n", [Cause.HANG]),
        ("It works on the TPU.\nThen on the GPU the training hangs.\n", []),
    ],
)
def test_what_a_person_writes_counts_where_nothing_else_is_recognised(text: str, expected: list[Cause]) -> None:
    assert causes(text) == expected


RETRIES = """W0901 10:00:00.000000 4711 hosts.cc:10] unexpected worker hostname t1v-n-0
trying a batch of 4096
RESOURCE_EXHAUSTED: Attempting to allocate 2.00G. That was not possible. There are 1.50G free.; (0x0x0_HBM0)
trying a batch of 2048
RESOURCE_EXHAUSTED: Attempting to allocate 1.75G. That was not possible. There are 1.50G free.; (0x0x0_HBM0)
trying a batch of 1024
"""


def test_what_a_program_prints_after_a_record_with_a_header_is_looked_at_by_itself() -> None:
    [finding] = findings_in(RETRIES.encode(), SCANNER, "job.log")
    assert (finding.cause, finding.count, finding.line) == (Cause.HBM_OOM_RUNTIME, 2, 3)
    assert finding.first.text.startswith("RESOURCE_EXHAUSTED: Attempting to allocate 2.00G")
    recovered = RETRIES + "step 1 loss 2.5\nstep 2 loss 2.25\n"
    assert findings_in(recovered.encode(), SCANNER, "job.log") == []


def test_each_program_that_the_kernel_killed_is_a_finding() -> None:
    cron = cgroup_report(90, "backup", cgroup="/system.slice/cron.service", limit_cgroup="/system.slice/cron.service")
    text = log(cron) + log(cgroup_report(91)) + log(cgroup_report(92))
    found = findings(text)
    assert [(one.cause, one.count, one.details["process"]) for one in found] == [
        (Cause.HOST_OOM, 1, "backup"),
        (Cause.HOST_OOM, 2, "python3"),
    ]


def test_the_command_that_was_killed_is_no_finding_beside_the_kernels_report() -> None:
    shell = "train.sh: line 12:  4711 Killed                  python3 train.py\n"
    (found,) = findings(log(cgroup_report()) + shell)
    assert (found.count, found.details["killed_pid"]) == (1, 4711)
    (alone,) = findings(shell)
    assert alone.cause is Cause.HOST_OOM


UNPLACED = "0/4 nodes are available: 4 Insufficient google.com/tpu.\n"
STOCKOUT = "google.com/tpu: node pool a in backoff after failed scale-up: GCE out of resources\n"


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ([UNPLACED], [(Cause.CAPACITY, "cluster-full")]),
        ([UNPLACED, "Something else.\n" * 9, STOCKOUT], [(Cause.CAPACITY, "capacity")]),
        (
            ["pod set a: insufficient unused quota for google.com/tpu in flavor b, 4 more needed\n"],
            [(Cause.QUOTA, "kueue-quota-used")],
        ),
        (
            ["couldn't assign flavors to pod set a: resource cpu unavailable in ClusterQueue\n"],
            [(Cause.QUOTA, "kueue-not-covered")],
        ),
        (["Quota 'TPUV5sLitepodPerProject' exhausted.\n"], [(Cause.QUOTA, "quota")]),
        (["couldn't assign flavors to pod set a: resource nvidia.com/gpu unavailable in ClusterQueue\n"], []),
    ],
)
def test_chips_that_the_cluster_holds_are_no_lack_of_the_clouds(
    lines: list[str], found: list[tuple[Cause, str]]
) -> None:
    assert [(one.cause, one.rule) for one in findings(*lines)] == found


CHIPS = "E0101 01:02:03.00000{0} 4711 d.cc:8] !!!! FATAL ERROR !!!! for [/dev/accel{0} tpu7:pe1:{0}]\n"
QUOTAS = """Quota 'TPUV4PodPerProjectPerRegionForTPUAPI' exhausted.
      Limit 256 in region us-central2
Quota 'TPUV5sLitepodPerProjectPerRegionForTPUAPI' exhausted.
      Limit 64 in region us-west4
"""


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        ([CHIPS.format(chip) for chip in (0, 2, 3)], ["tpu7:pe1:0", "tpu7:pe1:2", "tpu7:pe1:3"]),
        ([QUOTAS], ["TPUV4Pod", "TPUV5sLitepod", "256", "64", "us-central2", "us-west4"]),
        (
            [f"UNAVAILABLE: Task /job:jax_worker/replica:0/task:{task} heartbeat timeout.\n" for task in (1, 5)],
            ["task:1", "task:5"],
        ),
    ],
)
def test_all_that_failed_is_in_the_summary(lines: list[str], named: list[str]) -> None:
    (finding,) = findings(*lines)
    assert all(one in finding.summary for one in named)


SEMAPHORE = (
    "XlaRuntimeError: INTERNAL: Core halted unexpectedly: INTERNAL: Accelerator device halted. Node 0 halted "
    "unexpectedly at tag:pc TensorCoreSequencer:20:0xa (from TensorCoreSequencer:20:0x13a): Semaphore (scratch "
    "argument 3) has a nonzero value upon exit. Await each DMA. HLO: attention_64.4; HLO computation: f\n"
)


def test_why_a_core_halted_and_in_which_operation_is_in_the_summary() -> None:
    (finding,) = findings(SEMAPHORE)
    assert "Semaphore (scratch argument 3) has a nonzero value upon exit" in finding.summary
    assert "attention_64.4" in finding.summary


CRASH = "*** SIGSEGV received by PID 4711 (TID 4711) on cpu 3; stack trace: ***\n"
JAX, TORCH, TENSORFLOW = "import jax\n", '  File "torch_xla/core/model.py", line 7\n', "INFO:tensorflow:Done.\n"


@pytest.mark.parametrize(
    ("beside", "packages"),
    [
        ([JAX], "jax, jaxlib and libtpu"),
        ([TORCH], "torch, torch_xla and libtpu"),
        ([TENSORFLOW], "tensorflow-tpu and libtpu"),
        ([TENSORFLOW, TORCH], "torch, torch_xla and libtpu"),
        ([JAX, TORCH], "the framework and libtpu"),
        ([], "the framework and libtpu"),
    ],
)
def test_a_remedy_names_the_framework_that_the_text_shows(beside: list[str], packages: str) -> None:
    for lines in ([*beside, CRASH], [CRASH, *beside]):
        (finding,) = findings(*lines)
        assert f"update {packages} together" in finding.remedy[0].do


@pytest.mark.parametrize(
    ("text", "confidence"),
    [
        (OOM, CauseConfidence.CERTAIN),
        ("on a TPU v5e\njax.errors.JaxRuntimeError: INTERNAL: one thing is not another\n", CauseConfidence.LIKELY),
        ("On our TPU the training hangs after a while.\n", CauseConfidence.POSSIBLE),
        ("ValueError: too many cooks\n", CauseConfidence.LIKELY),
    ],
)
def test_a_cause_is_as_certain_as_what_it_was_recognised_by(text: str, confidence: CauseConfidence) -> None:
    (finding,) = findings(text)
    assert finding.confidence is confidence
    assert ("evidence" in finding.details) == (confidence is not CauseConfidence.CERTAIN)
