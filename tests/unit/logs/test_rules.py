"""The built-in rules, each by its own examples: alone, and as the parser and the scan see them."""

from __future__ import annotations

import re

import pytest
import re2

from tests.unit.whole_text import findings_in, matches_in
from tpuwatch.logs.parse.scan import Scanner
from tpuwatch.logs.rules.catalogue import Rule, load_catalogue
from tpuwatch.logs.rules.marks import CHAIN_MARKS
from tpuwatch.logs.rules.rule import MAX_MEMORY, show
from tpuwatch.model.causes import Cause

CATALOGUE = load_catalogue()
SCANNER = Scanner(CATALOGUE)
RULES = [pytest.param(rule, id=rule.id) for rule in CATALOGUE.rules]
EXAMPLES = [
    pytest.param(rule, text, id=f"{rule.id}-{n}") for rule in CATALOGUE.rules for n, text in enumerate(rule.examples)
]
EXPECTED = [
    pytest.param(rule, text, expected, id=f"{rule.id}-{n}")
    for rule in CATALOGUE.rules
    for n, (text, expected) in enumerate(zip(rule.examples, rule.expected, strict=False))
    if expected
]
COUNTEREXAMPLES = [
    pytest.param(rule, text, id=f"{rule.id}-{n}")
    for rule in CATALOGUE.rules
    for n, text in enumerate(rule.counterexamples)
]


def recognised(text: str, name: str = "job.txt") -> set[str]:
    return {match.rule.id for match in matches_in(text.encode(), SCANNER, name, now=1_790_000_000.0)}


def same_kind(rule: Rule) -> set[str]:
    """Of one cause the parser keeps the best rule, so a sibling may speak for it."""
    return {other.id for other in CATALOGUE.rules if (other.cause, other.mark) == (rule.cause, rule.mark)}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_is_complete(rule: Rule) -> None:
    assert rule.examples
    assert rule.summary.endswith(".")
    for pattern in (*rule.match, *rule.unless, *rule.capture):
        assert re.compile(pattern)
    rule.search(b"")
    rule.details(b"")
    assert rule.cause is None or rule.remedy
    assert all(step.do.endswith((".", "`")) and step.source.startswith("https://") for step in rule.remedy)
    assert "{" not in rule.describe({})


def test_patterns_have_room_for_their_states(capfd: pytest.CaptureFixture[str]) -> None:
    options = re2.Options()  # which log errors: RE2 says so when it goes on in its slow way
    options.max_mem = MAX_MEMORY
    for rule in CATALOGUE.rules:
        for pattern in filter(None, (rule._match, rule._unless)):
            again = re2.compile(pattern.pattern, options)
            for example in rule.examples:
                again.search(example.encode())
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(("rule", "text"), COUNTEREXAMPLES)
def test_a_counterexample_is_not(rule: Rule, text: str) -> None:
    assert rule.search(text.encode()) is None
    assert rule.id not in recognised(text)


@pytest.mark.parametrize(("rule", "text"), EXAMPLES)
def test_an_example_is_recognised_in_a_job_and_in_a_log(rule: Rule, text: str) -> None:
    assert rule.search(text.encode()) is not None
    settled = (
        f"\nI0101 01:02:05.000000    4711 other.cc:1] {rule.tentative.confirm.decode()}: 1s\n"
        if rule.tentative
        else "\n"
    )
    assert recognised(text + settled) & same_kind(rule)
    if rule.mark in CHAIN_MARKS or (rule.prose and rule.cause is Cause.UNKNOWN_FAILURE):
        return  # libtpu writes none of these
    severity = min(rule.severities or "E")
    log = f"{severity}0101 01:02:03.000000    4711 some.cc:12] {text.strip()}{settled}"
    assert recognised(log, "tpu_driver.vm.me.log.INFO.20260101-010203.4711") & same_kind(rule)


@pytest.mark.parametrize(("rule", "text", "expected"), EXPECTED)
def test_an_example_gives_its_details_and_the_summary_says_them(
    rule: Rule, text: str, expected: dict[str, object]
) -> None:
    found = rule.details(text.encode())
    assert {name: found.get(name) for name in expected} == expected
    named = [name for name in expected if f"{{{name}}}" in rule.summary]
    assert all(show(name, expected[name]) in rule.describe(found) for name in named)


@pytest.mark.parametrize(
    ("rule", "text", "details"),
    [
        (
            "premapped-exhausted",
            "Allocating buffer from premapped region failed with: RESOURCE_EXHAUSTED: "
            "Attempting to allocate 5.00G. That was not possible. There are 3.50G free.",
            {"requested_bytes": 5 * 2**30, "free_bytes": 7 * 2**29},
        ),
        (
            "hbm-oom-runtime",
            "Error loading program 'jit_f': Attempting to reserve 3.00G at the bottom of memory.\n"
            "That was not possible. There are 2.00G free, 0B reserved, and 1.00G reservable.",
            {"requested_bytes": 3 * 2**30, "free_bytes": 2 * 2**30, "reservable_bytes": 2**30, "module": "jit_f"},
        ),
        (
            "hbm-oom-compile",
            "Ran out of memory in memory space hbm; used: 8.00G; limit: 7.50G.",
            {"used_bytes": 8 * 2**30, "limit_bytes": 15 * 2**29},
        ),
        (
            "vmem-oom",
            "Scoped allocation with size 20.00M and limit 16.00M exceeded scoped vmem limit by 4.00M.",
            {"used_bytes": 20 * 2**20, "limit_bytes": 2**24, "exceeded_bytes": 2**22},
        ),
        ("tpu-in-use", "The TPU is already in use by process with pid 4711.", {"holder_pid": 4711}),
        (
            "auth-scope",
            "insufficient authentication scopes: needs https://www.googleapis.com/auth/cloud-platform",
            {"scope": "cloud-platform"},
        ),
        ("unsupported-op", "No registered 'PyFunc' OpKernel for XLA_TPU_JIT devices", {"op": "PyFunc"}),
        (
            "mark-premapped",
            "TPU premapped buffer enabled. Size: 0x61a80 Threshold: 4096 Partitions: 2",
            {"premapped_bytes": 400000, "premapped_threshold_bytes": 4096, "premapped_partitions_count": 2},
        ),
        ("mark-progress", "completed step: 12, seconds: 1.5, loss: 9.9", {"step_count": 12, "loss": "9.9"}),
        (
            "host-oom-machine",
            "Out of memory: Killed process 4711 (python3) total-vm:1kB, anon-rss:2048kB",
            {"killed_pid": 4711, "process": "python3", "resident_bytes": 2**21},
        ),
        ("mesh-error", "Expected 4 worker addresses, got 1", {"expected_count": 4, "found_count": 1}),
        (
            "heartbeat-lost",
            "Task /job:jax_worker/replica:0/task:3 heartbeat timeout.",
            {"hosts": "/job:jax_worker/replica:0/task:3"},
        ),
        ("bad-flag", "ERROR: Unknown command line flag 'xla_tpu_some_option'", {"flag": "xla_tpu_some_option"}),
    ],
)
def test_numbers_are_extracted(rule: str, text: str, details: dict[str, object]) -> None:
    found = CATALOGUE.rule(rule).details(text.encode())
    assert {name: found.get(name) for name in details} == details


@pytest.mark.parametrize(
    "text",
    [
        "E0101 01:02:03.000000  4711 env.cc:1] Warning: impure flag specified on command line: xla_tpu_impure_x",
        "W0101 01:02:03.000000  4711 x.cc:1] TPUPollingThread found TPU my-tpu in state READY, and health HEALTHY.",
        "*** SIGTERM received by PID 4711 (TID 4711) on cpu 1, si_code=0, from PID 1; stack trace: ***",
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 22.00 MiB. GPU 0 has 23.65 GiB",
        "RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB (NPU 0; 60.97 GiB total capacity)",
        "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 34359738368 bytes on GPU_0_bfc",
        "nrt_init failed: NEURON_RT could not find any Neuron device",
        "NCCL WARN Cuda failure 'out of memory'",
        "Allocation of 67141632 exceeds 10% of system memory.",
        "HTTPError: 429 Client Error: Too Many Requests for url: https://api.example.org",
        "Detected slow graph. This is informational only and this is NOT a hang: jit_step",
        "INFO:tensorflow:Saving checkpoints for 1000 into gs://bucket/model.ckpt.",
        "I0101 01:02:03.000000  4711 c.cc:1] Total hbm usage >= 515.04M:",
        "redis.exceptions.ConnectionError: Error 111 connecting to localhost:6379. Connection refused.",
        "git@github.com: Permission denied (publickey).",
        "UnavailableError: From /job:ps/replica:0/task:0: Socket closed",
    ],
)
def test_nothing_is_found_where_nothing_is_wrong_with_the_tpu(text: str) -> None:
    found = matches_in(text.encode(), SCANNER, "job.txt")
    faults = {match.rule.cause for match in found if not match.rule.prose} - {None}
    assert faults <= {Cause.UNKNOWN_FAILURE}
    assert {finding.cause for finding in findings_in(text.encode(), SCANNER, "job.txt")} <= {Cause.UNKNOWN_FAILURE}


NONSENSE = "9" * 400


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("hbm-oom-runtime", f"Attempting to allocate {NONSENSE}. That was not possible."),
        ("hbm-oom-runtime", f"Attempting to allocate {NONSENSE}.5G. That was not possible."),
        ("hbm-oom-runtime", f"Attempting to allocate 0x{'f' * 16}. That was not possible."),
        (
            "mark-premapped",
            f"TPU premapped buffer enabled. Size: {NONSENSE} Threshold: {NONSENSE}T Partitions: {NONSENSE}",
        ),
        ("mark-init-done", f"TPU initialization is successful and it took {NONSENSE}s"),
        ("slow-init", f"TPU initialization is successful and it took 1h{NONSENSE}s"),
        ("tpu-in-use", f"The TPU is already in use by process with pid {NONSENSE}."),
    ],
)
def test_numbers_that_can_be_none_are_no_details(rule: str, text: str) -> None:
    assert CATALOGUE.rule(rule).details(text.encode()) == {}


def test_the_holders_of_a_tpu_in_use_are_those_of_the_lock_file_too() -> None:
    (rule,) = [rule for rule in CATALOGUE.rules if rule.id == "tpu-in-use"]
    find, lock = (step.do for step in rule.remedy)
    assert "lsof -w /dev/accel* /dev/vfio/* /tmp/libtpu_lockfile" in find
    assert lock.startswith("Leave /tmp/libtpu_lockfile alone while any process holds it or a device.")


@pytest.mark.parametrize(
    ("text", "restart"),
    [
        ("DEADLINE_EXCEEDED: Deadline Exceeded\nRPC: /tensorflow.CoordinationService/RegisterTask\n", False),
        ("DEADLINE_EXCEEDED: GetKeyValue() timed out with key: cuda_or_tpu:local_topology/0 and duration: 2m\n", False),
        ("jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: /job:jax_worker/replica:0/task:1\n", False),
        ("errors_impl.DeadlineExceededError: Deadline Exceeded from /job:worker/replica:0/task:0\n", True),
    ],
)
def test_a_restart_of_the_node_is_advised_for_a_session_of_tensorflow_alone(text: str, restart: bool) -> None:
    (finding,) = findings_in(text.encode(), SCANNER, "job.txt")
    assert finding.cause == "deadline_exceeded"
    assert any("tpuwatch restart" in step.do for step in finding.remedy) is restart
