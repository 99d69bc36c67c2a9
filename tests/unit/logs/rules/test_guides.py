"""The errors that the operators' guides name: each is found, with the guide's own remedy among its steps.

The error texts are what the programs print.
"""

from __future__ import annotations

import pytest

from tests.unit.whole_text import findings_in
from tpuwatch.logs.parse.scan import Scanner
from tpuwatch.logs.rules.catalogue import load_catalogue
from tpuwatch.model.causes import Cause
from tpuwatch.model.events import Finding

SCANNER = Scanner(load_catalogue())
HBM_V2 = "ResourceExhaustedError: Ran out of memory in memory space hbm; used: 8.10G; limit: 7.48G.\n"
CPU_OOM = (
    "OOM when allocating tensor with shape[4096,512,512] and type uint8 on "
    "/job:localhost/replica:0/task:0/device:CPU:0 by allocator cpu"
)
EDGE = "Found an edge from node a/Pad (op: Pad) to node b/Pack (op: Pack) that is not allowed on this TPU."
PADDED = """\
Ran out of memory in memory space hbm. Used 22.46G of 15.48G hbm. Exceeded hbm capacity by 6.98G.

Total hbm usage >= 22.46G:
    program          19.46G
    arguments        unknown size (arguments)

Program hbm requirement 19.46G:
    scoped            4.00M
    HLO temp         19.46G (33.6% utilization: Unpadded (6.54G) Padded (19.46G), 0.0% fragmentation (5.5K))

  Largest program allocations in hbm:

  1. Size: 13.57G
     Shape: f32[100,300,16,1]{3,2,1,0:T(8,128)}
     Unpadded size: 1.00M
"""

GUIDE = [
    # What the connection and the node say.
    ("DeadlineExceededError: Deadline Exceeded", Cause.DEADLINE_EXCEEDED, "stop and start the node"),
    (
        "Failed to connect to the Tensorflow master. The TPU worker may not be ready (still scheduling) or the "
        "Tensorflow master address is incorrect: got (grpc://10.0.0.2:8470).",
        Cause.CONNECT_FAILED,
        "restart it",
    ),
    ("RuntimeError: Cannot find any TPU cores in the system.", Cause.NO_TPU_FOUND, "runtime version"),
    ("Failed to establish SliceBuilder grpc channel to 10.0.0.2:8471.", Cause.CONNECT_FAILED, "8470 to 8479"),
    ("The job on the TPU VM ended with exit code 139", Cause.COMPILER_CRASH, "SIGSEGV"),
    ("KeyboardInterrupt", Cause.INTERRUPTED, "SIGQUIT"),
    ("TPU Execute is taking a long time.", Cause.HANG, "SIGQUIT"),
    # Who may do what, and from where.
    ("HttpError 403: Request had insufficient authentication scopes.", Cause.AUTH_SCOPE, "--update-adc"),
    ("me@10.0.0.2: Permission denied (publickey).", Cause.SSH_KEY, "google_compute_engine.pub"),
    ("client_loop: send disconnect: Broken pipe", Cause.SSH_KEY, "tmux or screen"),
    ("Connection to 10.0.0.2 closed by remote host.", Cause.SSH_KEY, "systemd-run"),
    (
        "Connection to 10.0.0.2 closed by remote host.\nERROR: (gcloud.compute.tpus.tpu-vm.ssh) [/usr/bin/ssh] "
        "exited with return code [255].",
        Cause.SSH_KEY,
        "tmux or screen",
    ),
    ("Hangup", Cause.SSH_KEY, "tmux or screen"),
    ("tpuwatch exec: the command exited with code 129", Cause.SSH_KEY, "nohup"),
    (
        "You cannot perform this action because the Google Cloud CLI component manager is disabled for this "
        "installation.",
        Cause.GCLOUD_COMPONENTS,
        "apt-get install",
    ),
    (
        "ERROR: (gcloud.components.update) You cannot perform this action because this Google Cloud CLI installation "
        "is managed by an external package manager.",
        Cause.GCLOUD_COMPONENTS,
        "apt-get remove",
    ),
    # What does not fit.
    (HBM_V2, Cause.HBM_OOM_COMPILE, "mixed_bfloat16 keeps activations in bfloat16 and weights in float32"),
    (PADDED, Cause.HBM_OOM_COMPILE, "multiples of 8 and 128"),
    ("Memory cgroup out of memory: Killed process 7 (python3)", Cause.HOST_OOM, "Give each replica its own dataset"),
    (f"On this TPU VM: ResourceExhaustedError: {CPU_OOM} [Op:BatchDatasetV2]", Cause.HOST_OOM, "input pipeline"),
    (
        f"InternalError: TPU step failed: (0) Resource exhausted: {CPU_OOM}\n\t [[{{{{node map}}}}]]\n"
        "Hint: If you want to see a list of allocated tensors when OOM happens, add it to RunOptions.",
        Cause.HOST_OOM,
        "Give each replica its own dataset",
    ),
    ("On this TPU VM: OSError: [Errno 28] No space left on device", Cause.DISK_FULL, "df -h"),
    (
        "Allocating buffer from premapped region failed with: RESOURCE_EXHAUSTED: Attempting to allocate 5.00G.",
        Cause.PREMAPPED_EXHAUSTED,
        "TPU_PREMAPPED_BUFFER_SIZE",
    ),
    (
        "A alocação do buffer da região pré-mapeada falhou com:\n"
        "RESOURCE_EXHAUSTED: Attempting to allocate 5.00G. That was not possible. There are 3.50G free.",
        Cause.PREMAPPED_EXHAUSTED,
        "TPU_PREMAPPED_BUFFER_SIZE",
    ),
    # What the program asks for.
    (f"InvalidArgumentError: {EDGE} Dst node should be assigned to an allowed device.", Cause.UNPLACEABLE_OP, "drop_r"),
    (
        f"  (0) Invalid argument: {{{{function_node __inference_1}}}} {EDGE}\n"
        "Dst node should be assigned to an allowed device.",
        Cause.UNPLACEABLE_OP,
        "validate_shape=True",
    ),
    ("Dst node should be assigned to an allowed device.", Cause.UNPLACEABLE_OP, "a fixed batch"),
    (
        "InvalidArgumentError: Unable to find the relevant tensor remote_handle: Op ID: 14738, Output num: 0",
        Cause.TENSOR_HANDLE,
        "generator",
    ),
    ("Compilation failure: Dynamic Spatial Convolution is not supported", Cause.DYNAMIC_SHAPE, "drop_remainder"),
    (
        "Compilation failure: Detected unsupported operations when trying to compile graph cond_1[] on XLA_TPU_JIT: A",
        Cause.UNSUPPORTED_OP,
        "move it to the host",
    ),
    ("Unimplemented: File system scheme '[local]' not implemented", Cause.DATA_PIPELINE_ERROR, "Cloud Storage"),
    (
        "error: dialect 'sdy' does not implement the bytecode interface. Failed to parse using StableHLO v1.8.8",
        Cause.VERSION_MISMATCH,
        "Install framework and libtpu of the same release",
    ),
]


def only(text: str) -> Finding:
    (finding,) = findings_in(f"{text}\n".encode(), SCANNER, "console.txt")
    return finding


@pytest.mark.parametrize(("text", "cause", "remedy"), GUIDE)
def test_what_a_guide_names_is_found_with_the_guides_remedy(text: str, cause: Cause, remedy: str) -> None:
    finding = only(text)
    assert finding.cause is cause
    assert any(remedy in step.do for step in finding.remedy), [step.do for step in finding.remedy]


@pytest.mark.parametrize(
    "text",
    [
        "client_loop: send disconnect: Broken pipe",
        "client_loop: send disconnect: Connection reset",
        "Connection to 10.0.0.2 closed by remote host.",
        "Read from remote host 10.0.0.2: Connection reset by peer",
        "ssh: connect to host 10.0.0.2 port 22: Connection timed out",
        "ssh: connect to host 10.0.0.2 port 22: Connection refused",
        "kex_exchange_identification: Connection closed by remote host\nConnection closed by 10.0.0.2 port 22",
        "kex_exchange_identification: read: Connection reset by peer\nConnection reset by 10.0.0.2 port 22",
        "Connection timed out during banner exchange",
        "Host key verification failed.",
        "",
    ],
)
def test_advice_about_keys_is_given_where_the_key_was_refused_only(text: str) -> None:
    ended = "ERROR: (gcloud.compute.tpus.tpu-vm.ssh) [/usr/bin/ssh] exited with return code [255]."
    finding = only(f"{text}\n{ended}")
    assert finding.cause is Cause.SSH_KEY
    assert not any("google_compute_engine" in step.do for step in finding.remedy)
    denied = only(f"{text}\nme@10.0.0.2: Permission denied (publickey).\n{ended}")
    if text != "Host key verification failed.":
        assert any("google_compute_engine" in step.do for step in denied.remedy)


def test_a_limit_of_hbm_says_whose_it_is() -> None:
    assert "7.48 GiB is there, the limit of a v2 core, which has 8 GB" in only(HBM_V2).summary


def test_the_padding_is_what_the_report_says_of_all_temporaries() -> None:
    finding = only(PADDED)
    assert finding.details["padding_bytes"] == pytest.approx(12.92 * 2**30)
    assert "12.92 GiB of what it needs is padding" in finding.summary


@pytest.mark.parametrize(
    "prefix", ["XlaRuntimeError: ", "JaxRuntimeError: ", "RuntimeError: Bad StatusOr access: ", ""]
)
def test_the_commonest_line_about_hbm_keeps_its_numbers(prefix: str) -> None:
    line = "RESOURCE_EXHAUSTED: Attempting to allocate 2.00G. That was not possible. There are 1.50G free.; (0x0x0_HBM)"
    assert only(prefix + line).summary == "HBM is full: 2 GiB was asked for and 1.5 GiB is free."


def test_what_libtpu_prints_without_metadata_is_a_hint_beside_other_findings() -> None:
    hint = "WARNING: could not determine TPU accelerator type.\n"
    missing = "TPU initialization failed: No jellyfish device found.\n"
    assert findings_in(hint.encode(), SCANNER, "console.txt") == []
    finding = only(hint + missing)
    assert finding.cause is Cause.NO_TPU_FOUND
    assert "TPU_ACCELERATOR_TYPE" in finding.remedy[-1].do


@pytest.mark.parametrize(
    "wrapped",
    [
        "NotImplementedError: Mosaic kernels cannot be automatically\n  partitioned. Please wrap the call.",
        "> RESOURCE_EXHAUSTED: Allocation (size=1179648) would exceed memory\n> (size=1048576) ('prefetched SMEM').",
        "(EngineCore_0 pid=7) ERROR 11-22 10:11:12 [core.py:1] TPU backend initialization is taking\n"
        "(EngineCore_0 pid=7) ERROR 11-22 10:11:12 [core.py:1] more than 60.0 seconds.",
        "The Google Cloud CLI component\nmanager is disabled for this\ninstallation.",
    ],
)
def test_a_message_that_is_wrapped_is_found(wrapped: str) -> None:
    assert only(wrapped)


def test_a_general_finding_gives_way_to_a_specific_one_of_the_same_failure() -> None:
    general = "jax.errors.JaxRuntimeError: INTERNAL: something in the TPU did not work\n"
    assert only(general).cause is Cause.COMPILER_CRASH
    specific = "jax.errors.JaxRuntimeError: INTERNAL: Core halted unexpectedly\n"
    assert only(specific).cause is Cause.CORE_HALTED
    far = general + "All is well.\n" * 200 + specific
    assert [f.cause for f in findings_in(far.encode(), SCANNER, "console.txt")] == [
        Cause.CORE_HALTED,
        Cause.COMPILER_CRASH,
    ]


@pytest.mark.parametrize(
    "text",
    [
        "jax.errors.JaxRuntimeError: INTERNAL: something did not work",
        "GPU_0_bfc ran out.\nXlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory",
        "import torch_xla\nTT_FATAL: no room\nRuntimeError: Bad StatusOr access: INTERNAL: Error code: 13",
        "Ran on 8 GPUs: UNAVAILABLE: Task /job:jax_worker/replica:0/task:2 heartbeat timeout",
        "Known signatures: (`TPU initialization failed`, `No accelerator found`, `Device or resource busy`)",
    ],
)
def test_a_text_that_names_no_tpu_or_another_accelerator_has_no_finding(text: str) -> None:
    found = [finding.cause for finding in findings_in(f"{text}\n".encode(), SCANNER, "console.txt")]
    assert found in ([], [Cause.UNKNOWN_FAILURE])
