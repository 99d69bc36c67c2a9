from __future__ import annotations

import gc
import platform
import re
import shutil
import subprocess
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from tests import golden
from tests.unit.restart import records
from tests.unit.web import samples as given
from tpuwatch.logs.tail.files import Refusal
from tpuwatch.metrics.registry import Metrics
from tpuwatch.model.answers import Answer, Problem, Signal
from tpuwatch.model.causes import Cause
from tpuwatch.model.progress import ProgressSource, Slowdown, SlowdownKind, TrainingLoop
from tpuwatch.model.restart import Phase
from tpuwatch.model.signals import Peer, QueuedResource
from tpuwatch.model.verdict import Unseen, Verdict

GOLDEN = Path(__file__).parent / "golden" / "metrics.txt"
OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
UNITS = ("seconds", "bytes", "ratio", "info")
UNITLESS = {  # gauges that count things or say yes or no
    *("tpuwatch_workload_step", "tpuwatch_workload_loss", "tpuwatch_workload_loops"),
    *("tpuwatch_workload_loop_faults", "tpuwatch_workload_tokens_per_second"),
    "tpuwatch_log_files",
    "tpuwatch_store_durable",
    "tpuwatch_store_events",
    "tpuwatch_finding",
    "tpuwatch_rules_loaded",
    "tpuwatch_rules_refused",
    "tpuwatch_config_reload_success",
    "process_open_fds",
    "process_max_fds",
    "tpuwatch_node_state",
    "tpuwatch_queued_resource_state",
    "tpuwatch_queued_resources",
    "tpuwatch_queued_resource_problems",
    "tpuwatch_node_health",
    "tpuwatch_slice_workers",
    "tpuwatch_slice_culprit",
    "tpuwatch_verdict",
    "tpuwatch_workload_kind",
    "tpuwatch_nodes",
    "tpuwatch_problems",
    "tpuwatch_signal_up",
    "tpuwatch_api_breaker_open",
    "tpuwatch_maintenance_notice",
    "tpuwatch_preemption_notice",
    "tpuwatch_tpu_holders",
    "tpuwatch_hlo_queue_programs",
    "tpuwatch_breaker_open",
    "tpuwatch_restart_person_needed",
    "tpuwatch_ledger_up",
    "tpuwatch_log_inotify_up",
    "tpuwatch_peer_up",
    "tpuwatch_peers",
    "tpuwatch_restarts_open",
    "tpuwatch_restarts_waiting_for_capacity",
    "tpuwatch_restarts_unrecorded",
    "tpuwatch_tune_workloads",
    "tpuwatch_tune_workloads_unsatisfiable",
    "tpuwatch_tune_conflicts",
    "tpuwatch_tune_write_failed",
}


def new() -> Metrics:
    return Metrics(loops=("follow", "store"), refusals=[reason.value for reason in Refusal])


def filled() -> Metrics:
    """Metrics that have something to say in every family."""
    metrics = new()
    lost = Unseen(Signal.CLOUD, Problem.DENIED, "The account may not list the nodes.")
    out_of_sight = given.judgement(Verdict.NODE_STUCK, node="train-3", unseen=lost)
    awaited = given.node("train-4", Verdict.GONE, cloud=None, queued=QueuedResource("queue-1", "PROVISIONING"))
    metrics.node.set_nodes(
        [replace(given.node(), slice=given.slice_of_four()), given.node("train-3", judgement=out_of_sight), awaited]
    )
    metrics.node.set_queued_resources([given.queued("queue-1", "PROVISIONING")], ["us-central2-b"])
    metrics.node.set_runtime(given.runtime())
    metrics.node.set_runtime_response_pending(lambda: {8431: 0.5})
    metrics.node.set_host(given.host())
    metrics.node.set_signal("cloud", at=1.0, ok=True)
    metrics.peers.set_answers({"train-2": Answer(Peer(1.0), 1.0, None)})
    metrics.restart.set_operators_needed(["us-east5-a/train-1"])
    metrics.restart.set_state(records=[records.record(phase=Phase.STOPPED)], breaker_open=False)
    loop = TrainingLoop(ProgressSource.HEARTBEAT, "", 7, "alice", 1.0, 9, 2.0, 2.0, alive=True)
    measured = replace(
        loop,
        loss=2.5,
        tokens_per_second=10.0,
        step_seconds=1.0,
        usual_step_seconds=1.0,
        input_share=0.1,
        slowdown=Slowdown(SlowdownKind.STEPS, 2.0, 8, 0.1, 3.0),
    )
    metrics.progress.set_loops([measured])
    metrics.daemon.set_findings(cause.value for cause in Cause)
    return metrics


def scrape(metrics: Metrics) -> str:
    return metrics.exposition()[0].decode()


def samples(metrics: Metrics) -> dict[tuple[str, ...], float]:
    """Every sample's value under its name and its label values."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in parse_text(scrape(metrics))
        for sample in family.samples
    }


def test_a_fresh_scrape_is_the_golden_one() -> None:
    text = re.sub(r" [0-9.e+-]+$", " V", scrape(new()), flags=re.MULTILINE)
    text = text.replace(f'python="{platform.python_version()}"', 'python="P"')
    text = re.sub(r'version="[^"]+"', 'version="T"', text)
    golden.holds(GOLDEN, text)


def test_every_family_is_named_and_explained_for_an_operator() -> None:
    faults = []
    for family in parse_text(scrape(filled())):
        names = {sample.name for sample in family.samples}
        unit = family.name.rsplit("_", 1)[-1]
        if not re.fullmatch(r"(tpuwatch|process)_[a-z][a-z0-9_]*[a-z]", family.name):
            faults.append(f"{family.name}: not a lower-case name with our prefix")
        if not (family.documentation.endswith(".") and len(family.documentation.split()) >= 4):
            faults.append(f"{family.name}: HELP is no sentence")
        if family.type == "unknown":
            faults.append(f"{family.name}: no TYPE")
        if (family.type == "counter") != all(name.endswith("_total") for name in names):
            faults.append(f"{family.name}: counters, and they alone, end in _total")
        if family.type != "counter" and unit not in UNITS and family.name not in UNITLESS:
            faults.append(f"{family.name}: no base unit at its end")
        if not names:
            faults.append(f"{family.name}: no series")
        if any(name.endswith("_created") for name in names):
            faults.append(f"{family.name}: has a _created series")
        if "timestamp" in family.name and not family.name.endswith("_timestamp_seconds"):
            faults.append(f"{family.name}: a time that does not end in _timestamp_seconds")
    assert faults == []


def test_labels_have_only_the_declared_names() -> None:
    labels = {name for family in parse_text(scrape(filled())) for sample in family.samples for name in sample.labels}
    tuning = {"variable", "direction"}
    own = {
        "cause",
        "outcome",
        "severity",
        "state",
        "reason",
        "loop",
        "kind",
        "code",
        "version",
        "python",
        "le",
        "problem",
        "queued_resource",
    }
    assert (
        labels
        == own
        | {
            "zone",
            "node",
            "health",
            "verdict",
            "method",
            "chip",
            "port",
            "signal",
            "action",
            "result",
            "phase",
            "worker",
        }
        | tuning
    )


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian package prometheus)")
def test_promtool_has_nothing_to_say() -> None:
    result = subprocess.run(
        ["promtool", "check", "metrics"],  # noqa: S607 # wherever the system has it
        input=filled().exposition()[0],
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")


def test_every_series_stands_at_zero_from_the_start() -> None:
    others = {one[0] for one, value in samples(new()).items() if value and one[0].startswith("tpuwatch_")}
    assert others == {"tpuwatch_build_info", "tpuwatch_ledger_up", "tpuwatch_log_inotify_up"}


def test_initialisation_times() -> None:
    metrics = new()
    metrics.logs.observe_init(16.5)
    seen = samples(metrics)
    assert seen["tpuwatch_tpu_init_seconds_bucket", "15.0"] == 0
    assert seen["tpuwatch_tpu_init_seconds_bucket", "20.0"] == 1


def test_its_own_state() -> None:
    metrics = new()
    metrics.logs.count_read(50, at=1001.5)
    metrics.logs.set_files(followed=2, refused=1)
    metrics.daemon.set_store(durable=True, events=5)
    metrics.daemon.set_rules(loaded=300, refused=2)
    metrics.daemon.set_config(success=True, at=500.0)
    metrics.daemon.set_config(success=False, at=900.0)
    metrics.daemon.set_loop_success("follow", 1234.5, 0.25)
    metrics.daemon.count_http_request(418)
    seen = samples(metrics)
    assert seen["tpuwatch_log_last_read_timestamp_seconds",] == 1001.5
    assert (seen["tpuwatch_log_files", "followed"], seen["tpuwatch_log_files", "refused"]) == (2, 1)
    assert (seen["tpuwatch_store_durable",], seen["tpuwatch_store_events",]) == (1, 5)
    assert (seen["tpuwatch_rules_loaded",], seen["tpuwatch_rules_refused",]) == (300, 2)
    assert seen["tpuwatch_config_last_reload_timestamp_seconds",] == 500
    assert seen["tpuwatch_loop_last_success_timestamp_seconds", "follow"] == 1234.5
    assert seen["tpuwatch_http_requests_total", "other"] == 1


def test_two_instances_share_nothing() -> None:
    first, second = new(), new()
    first.logs.count("events", "hang", 1)
    assert samples(second)["tpuwatch_events_total", "hang"] == 0


def test_openmetrics_is_given_to_who_asks_for_it() -> None:
    body, content_type = filled().exposition(OPENMETRICS)
    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    types = {family.name: family.type for family in parse_openmetrics(body.decode())}
    assert (types["tpuwatch_host_oom_kills"], types["tpuwatch_node_state"]) == ("counter", "gauge")
    assert b"_created" not in body


@pytest.mark.parametrize(
    "accept",
    ["", "*/*", "text/html", "application/openmetrics-text;version=abc", "text/plain;version=zz", ";;,,=", "\xff"],
)
def test_any_other_wish_gets_plain_text(accept: str) -> None:
    body, content_type = new().exposition(accept)
    assert content_type.startswith(("text/plain; version=0.0.4", "application/openmetrics-text; version=1.0.0"))
    assert body.startswith(b"# HELP ")


@pytest.mark.slow
def test_hostile_texts_make_no_series_and_keep_no_memory() -> None:
    metrics = new()
    metrics.node.count_api_request("other", "other")
    names = sorted(samples(metrics))
    causes = [cause.value for cause in Cause if cause.is_fault]

    def offer(start: int, count: int) -> None:
        for number in range(start, start + count):
            text = f'hostile-{number}\n# TYPE x{number} counter{{cause="'
            with pytest.raises(KeyError):
                metrics.logs.count("events", text, 1)
            with pytest.raises(KeyError):
                metrics.logs.count_refused(text)
            with pytest.raises(KeyError):
                metrics.logs.count_records({text: 1})
            metrics.daemon.set_loop_success(text, 1.0, 1.0)
            metrics.daemon.count_http_request(number)
            metrics.logs.restore({("events", text): 1, (text, ""): 1})
            metrics.logs.count("events", causes[number % len(causes)], 1)

    offer(0, 100)
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    offer(100, 5_000)
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert sorted(samples(metrics)) == names
    assert grown < 50_000  # one text kept of each turn would be 300 KB
