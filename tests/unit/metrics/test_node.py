"""The metrics of nodes, of the runtime, of the host and of the signals."""

from __future__ import annotations

import inspect
import re
import time
import tracemalloc
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse_text

from tests.unit.web import samples
from tpuwatch.google import storage as storage_module
from tpuwatch.libtpu import metrics_proto
from tpuwatch.metrics import cloud_monitoring, node
from tpuwatch.metrics.registry import Metrics
from tpuwatch.model.judged_queued_resource import QueuedProblem
from tpuwatch.model.signals import (
    QUEUED_STATES,
    Chip,
    Host,
    Maintenance,
    Notices,
    QueuedResource,
    Runtime,
    RuntimePort,
)
from tpuwatch.model.verdict import Verdict
from tpuwatch.model.workload import WorkloadKind
from tpuwatch.restart import cloud_api
from tpuwatch.signals import monitoring

if TYPE_CHECKING:
    from tpuwatch.model.judged_node import JudgedNode


def new() -> Metrics:
    return Metrics(loops=(), refusals=())


def series(metrics: Metrics) -> dict[tuple[str, ...], float]:
    """Every sample's value under its name and its label values, the node or the method first, without the zone."""
    found: dict[tuple[str, ...], float] = {}
    seen: set[tuple[str | tuple[str, str], ...]] = set()
    for family in parse_text(metrics.exposition()[0].decode()):
        for sample in family.samples:
            whole = (sample.name, *sorted(sample.labels.items()))
            assert whole not in seen, f"{whole} is there twice: Prometheus would refuse the whole scrape"
            seen.add(whole)
            first = sorted(sample.labels.keys() - {"zone"}, key=lambda label: label not in ("node", "method"))
            found[(sample.name, *(sample.labels[label] for label in first))] = sample.value
    return found


def of(metrics: Metrics, prefix: str) -> dict[tuple[str, ...], float]:
    return {key: value for key, value in series(metrics).items() if key[0].startswith(prefix)}


def fleet(count: int) -> list[JudgedNode]:
    return [samples.node(f"train-{number}") for number in range(1, count + 1)]


# -- nodes


def test_a_node_has_a_series_for_every_value_and_the_one_that_holds_is_1() -> None:
    metrics = new()
    metrics.node.set_nodes([samples.node(verdict=Verdict.RUNTIME_STUCK)])
    states, healths = of(metrics, "tpuwatch_node_state"), of(metrics, "tpuwatch_node_health")
    verdicts = of(metrics, "tpuwatch_verdict")
    verdicts = {key: value for key, value in verdicts.items() if not key[0].endswith("_total")}
    since = verdicts.pop(("tpuwatch_verdict_since_timestamp_seconds", "train-1"))
    assert {key[2] for key in states} == set(node.STATES)
    assert {key[2] for key in healths} == set(node.HEALTHS)
    assert {key[2] for key in verdicts} == {verdict.value for verdict in Verdict}
    held = [key for key, value in {**states, **healths, **verdicts}.items() if value == 1]
    assert held == [
        ("tpuwatch_node_state", "train-1", "READY"),
        ("tpuwatch_node_health", "train-1", "HEALTHY"),
        ("tpuwatch_verdict", "train-1", "runtime_stuck"),
    ]
    assert since == samples.NOW - 720


@pytest.mark.parametrize(("state", "shown"), [("WAITING_FOR_RESOURCES", "WAITING_FOR_RESOURCES"), ("NEW", "other")])
def test_only_a_node_that_is_not_listed_has_the_state_of_its_queued_resource(state: str, shown: str) -> None:
    metrics = new()
    awaited = samples.node("train-2", Verdict.GONE, cloud=None, queued=QueuedResource("queue-1", state))
    metrics.node.set_nodes([samples.node(), awaited])
    assert of(metrics, "tpuwatch_queued_resource_state") == {("tpuwatch_queued_resource_state", "train-2", shown): 1}


def test_values_that_are_new_are_other_and_a_missing_health_is_unspecified() -> None:
    metrics = new()
    metrics.node.set_nodes([samples.node(cloud=samples.cloud_node(state="STATE_17", health="HEALTH_9"))])
    seen = series(metrics)
    assert seen["tpuwatch_node_state", "train-1", "other"] == 1
    assert seen["tpuwatch_node_health", "train-1", "other"] == 1
    metrics.node.set_nodes([samples.node(cloud=samples.cloud_node(health=""))])
    assert series(metrics)["tpuwatch_node_health", "train-1", "HEALTH_UNSPECIFIED"] == 1


def test_the_names_are_those_of_the_api() -> None:
    tpu_v2 = pytest.importorskip("google.cloud.tpu_v2")
    assert {state.name for state in tpu_v2.Node.State} == set(node.STATES) - {"other"}
    assert {health.name for health in tpu_v2.Node.Health} == set(node.HEALTHS) - {"other"}


def test_the_codes_are_those_of_grpc() -> None:
    grpc = pytest.importorskip("grpc")
    assert {code.name for code in grpc.StatusCode} == set(node.CODES) - {"other"}


def test_a_node_that_the_cloud_does_not_report_is_in_no_state() -> None:
    for count in (1, 200):
        metrics = new()
        metrics.node.set_nodes([samples.node(f"n{number}", Verdict.UNKNOWN, cloud=None) for number in range(count)])
        seen = series(metrics)
        assert not any(
            value for key, value in seen.items() if key[0] in ("tpuwatch_node_state", "tpuwatch_node_health")
        )
        assert seen["tpuwatch_verdict", "n0", "unknown"] == 1


def test_a_node_that_is_no_longer_watched_disappears() -> None:
    metrics = new()
    metrics.node.set_nodes([samples.node(), samples.node("train-2")])
    metrics.node.set_nodes([samples.node()])
    assert not [key for key in series(metrics) if "train-2" in key]
    metrics.node.set_nodes([])
    assert of(metrics, "tpuwatch_node_") == {}


def test_the_verdicts_are_counted() -> None:
    metrics = new()
    metrics.node.set_nodes([*fleet(3), samples.node("train-9", Verdict.GONE)])
    seen = series(metrics)
    assert (seen["tpuwatch_nodes", "healthy"], seen["tpuwatch_nodes", "gone"]) == (3, 1)
    assert seen["tpuwatch_nodes", "node_stuck"] == 0
    assert len(of(metrics, "tpuwatch_nodes")) == len(Verdict)


def test_beyond_a_hundred_nodes_only_what_holds_has_a_series() -> None:
    metrics = new()
    metrics.node.set_nodes(fleet(node.FULL_NODES))
    full = len(node.STATES) + len(node.HEALTHS) + len(Verdict) + 1 + len(WorkloadKind)
    by_node = [key for key in series(metrics) if len(key) > 1 and key[1].startswith("train-")]
    assert len(by_node) == node.FULL_NODES * full
    metrics.node.set_nodes(fleet(node.FULL_NODES + 1))
    held = {key: value for key, value in series(metrics).items() if len(key) > 1 and key[1] == "train-7"}
    assert held == {
        ("tpuwatch_node_state", "train-7", "READY"): 1,
        ("tpuwatch_node_health", "train-7", "HEALTHY"): 1,
        ("tpuwatch_verdict", "train-7", "healthy"): 1,
        ("tpuwatch_verdict_since_timestamp_seconds", "train-7"): samples.NOW - 7200,
    }


def test_the_kind_of_workload_of_a_node_is_1_and_of_one_that_is_not_known_none() -> None:
    metrics = new()
    metrics.node.set_nodes([samples.node(judgement=samples.judgement(kind=WorkloadKind.SERVING))])
    kinds = of(metrics, "tpuwatch_workload_kind")
    assert {key[2]: value for key, value in kinds.items()} == {"training": 0, "serving": 1, "interactive": 0}
    metrics.node.set_nodes([samples.node()])
    assert set(of(metrics, "tpuwatch_workload_kind").values()) == {0}


def test_nodes_of_one_name_in_two_zones_are_two() -> None:
    metrics = new()
    twin = samples.node(zone="europe-west4-b")
    metrics.node.set_nodes([samples.node(), twin, twin])
    assert healthy(metrics) == [("us-central2-b", "train-1"), ("europe-west4-b", "train-1")]
    assert series(metrics)["tpuwatch_nodes", "healthy"] == 3


def test_no_other_node_changes_the_labels_of_a_series() -> None:
    metrics = new()
    twin = samples.node(zone="europe-west4-b")
    for nodes in ([twin], [samples.node(), twin], [twin, samples.node()], [twin]):
        metrics.node.set_nodes(nodes)
        assert ("europe-west4-b", "train-1") in healthy(metrics)
        assert len(healthy(metrics)) == len(nodes)


def healthy(metrics: Metrics) -> list[tuple[str, str]]:
    """The zone and the name of each node that is healthy."""
    found = [sample for family in parse_text(metrics.exposition()[0].decode()) for sample in family.samples]
    return [
        (one.labels["zone"], one.labels["node"])
        for one in found
        if one.name == "tpuwatch_verdict" and one.labels["verdict"] == "healthy" and one.value == 1
    ]


@pytest.mark.parametrize("name", ["", 'a"} 1\n# TYPE x counter', "x" * 300, "n\u202eode", "a b"])
def test_what_no_node_is_called_makes_no_series_but_counts(name: str) -> None:
    metrics = new()
    metrics.node.set_nodes([samples.node(name)])
    assert of(metrics, "tpuwatch_node_") == {}
    assert series(metrics)["tpuwatch_nodes", "healthy"] == 1


def test_five_thousand_nodes_are_rendered_soon_and_leanly() -> None:
    metrics, nodes = new(), fleet(5000)
    tracemalloc.start()
    metrics.node.set_nodes(nodes)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 2_000_000  # a child object of prometheus_client for each of 20,000 series would take 15 MB
    before = time.process_time()
    body, _ = metrics.exposition()
    seconds = time.process_time() - before
    assert body.count(b'"train-') == 20_000
    assert seconds < 2.0  # 0.1 s measured


# -- queued resources


def queued_series(metrics: Metrics) -> dict[str, float]:
    """Those of queued resources, as they are written."""
    lines = metrics.exposition()[0].decode().splitlines()
    found = (line.rpartition(" ") for line in lines if line.startswith("tpuwatch_queued_resource"))
    return {key.removeprefix("tpuwatch_queued_resource"): float(value) for key, _, value in found}


def test_queued_resources_count_by_zone_state_and_problem() -> None:
    metrics = new()
    assert queued_series(metrics) == {}
    failed = samples.queued("q-1", "FAILED", QueuedProblem.ENDED)
    found = [failed, failed, samples.queued("q-3", "STATE_17"), samples.queued("q-4", "", QueuedProblem.NOT_FOUND)]
    zones = ["eu-b", "us-central2-b"]
    metrics.node.set_queued_resources(found, zones)
    expected = {
        f's{{state="{state}",zone="{zone}"}}': 0.0 for zone in zones for state in (*QUEUED_STATES, node.OTHER)
    } | {f'_problems{{problem="{one.value}",zone="{zone}"}}': 0.0 for zone in zones for one in QueuedProblem}
    assert queued_series(metrics) == expected | {
        's{state="FAILED",zone="us-central2-b"}': 2,
        's{state="other",zone="us-central2-b"}': 1,
        '_problems{problem="ended",zone="us-central2-b"}': 2,
        '_problems{problem="not_found",zone="us-central2-b"}': 1,
    }
    metrics.node.set_queued_resources([], [])
    assert queued_series(metrics) == {}


def test_of_those_that_wait_the_oldest_have_a_series() -> None:
    metrics = new()
    waiting = [samples.queued(f"q-{number}", "ACCEPTED", created=1000.0 + number) for number in range(100)]
    others = [samples.queued("active", "ACTIVE", created=1.0), samples.queued("when", "CREATING", created=None)]
    metrics.node.set_queued_resources([*waiting[::-1], *others], [])
    name = '_waiting_since_timestamp_seconds{queued_resource="q-%d",zone="us-central2-b"}'
    assert queued_series(metrics) == {name % age: 1000 + age for age in range(node.MAX_WAITING)}


# -- who is asked


def test_each_method_that_is_called_has_a_label_and_no_other() -> None:
    runtime = {path.rpartition("/")[2] for path in (metrics_proto.GET_METRIC, metrics_proto.LIST_METRICS)}
    lists = {"ListNodes", "ListQueuedResources", monitoring._LIST, cloud_monitoring._CREATE}
    storage = set(re.findall(r'_request\("([\w.]+)"', inspect.getsource(storage_module)))
    assert len(storage) == 5
    assert sorted(node.METHODS) == sorted({*cloud_api._PERMISSIONS, *lists, *storage, *runtime, node.OTHER})


def test_calls_count_by_method_and_code() -> None:
    metrics = new()
    assert series(metrics)["tpuwatch_api_requests_total", "ListNodes", "UNAVAILABLE"] == 0
    assert not [key for key in series(metrics) if "StopNode" in key]
    metrics.node.count_api_request("ListNodes", "OK")
    metrics.node.count_api_request("ListNodes", "OK")
    metrics.node.count_api_request("StopNode", "FAILED_PRECONDITION")
    metrics.node.count_api_request("DeleteNode", "TEAPOT")
    seen = series(metrics)
    assert seen["tpuwatch_api_requests_total", "ListNodes", "OK"] == 2
    assert seen["tpuwatch_api_requests_total", "StopNode", "FAILED_PRECONDITION"] == 1
    assert seen["tpuwatch_api_requests_total", "StopNode", "OK"] == 0
    assert seen["tpuwatch_api_requests_total", "other", "other"] == 1


def test_the_breaker() -> None:
    metrics = new()
    metrics.node.set_api_breaker(True)
    assert series(metrics)["tpuwatch_api_breaker_open",] == 1
    metrics.node.set_api_breaker(False)
    assert series(metrics)["tpuwatch_api_breaker_open",] == 0


def test_a_signal_that_is_not_to_be_asked_is_not_down() -> None:
    metrics = new()
    assert of(metrics, "tpuwatch_signal_up") == of(metrics, "tpuwatch_signal_last") == {}
    metrics.node.set_signal("cloud", at=900.5, ok=False)
    metrics.node.set_signal("host", at=None, ok=False)
    metrics.node.set_signal("logs", at=1000.5, ok=True)
    assert of(metrics, "tpuwatch_signal_up") | of(metrics, "tpuwatch_signal_last") == {
        ("tpuwatch_signal_up", "cloud"): 0,
        ("tpuwatch_signal_up", "host"): 0,
        ("tpuwatch_signal_up", "logs"): 1,
        ("tpuwatch_signal_last_answer_timestamp_seconds", "cloud"): 900.5,
        ("tpuwatch_signal_last_answer_timestamp_seconds", "host"): 0,
        ("tpuwatch_signal_last_answer_timestamp_seconds", "logs"): 1000.5,
    }
    metrics.node.set_signal("cloud", at=900.5, ok=None)
    assert ("tpuwatch_signal_up", "cloud") not in series(metrics)


# -- this machine


def test_chips_while_a_workload_runs() -> None:
    metrics = new()
    metrics.node.set_runtime(samples.runtime())
    seen = series(metrics)
    assert (seen["tpuwatch_hbm_used_bytes", "2"], seen["tpuwatch_hbm_total_bytes", "2"]) == (3 * 2**30, 16 * 2**30)
    assert seen["tpuwatch_tensorcore_duty_cycle_ratio", "2"] == 0.4
    assert seen["tpuwatch_tensorcore_idle_seconds", "2"] == 1.5
    assert seen["tpuwatch_hlo_queue_programs",] == 2
    assert seen["tpuwatch_hbm_used_bytes", "3"] == 2**30
    assert ("tpuwatch_tensorcore_duty_cycle_ratio", "3") not in seen  # it was not told, and 0 would be a claim
    metrics.node.set_runtime(None)
    assert not {key[0] for key in series(metrics)} & {"tpuwatch_hbm_used_bytes", "tpuwatch_hlo_queue_programs"}


def test_what_a_port_owes_is_read_at_the_scrape() -> None:
    metrics, owed = new(), {8432: 0.0, 8431: 0.0}
    assert of(metrics, "tpuwatch_runtime_response_pending") == {}
    metrics.node.set_runtime_response_pending(lambda: owed)
    name = "tpuwatch_runtime_response_pending_seconds"
    assert of(metrics, name) == {(name, "8431"): 0, (name, "8432"): 0}
    owed[8431] = 1.5
    assert of(metrics, name) == {(name, "8431"): 1.5, (name, "8432"): 0}
    metrics.node.set_runtime_response_pending(None)
    assert of(metrics, name) == {}


def test_no_more_than_64_ports() -> None:
    metrics = new()
    metrics.node.set_runtime_response_pending(lambda: dict.fromkeys(range(8000, 9000), 0.0))
    assert len(of(metrics, "tpuwatch_runtime_response_pending_seconds")) == 64


@pytest.mark.parametrize("ids", [("0", "0"), ("0", "x\n"), ("7", "64"), ("", "1"), ("01", "1")])
def test_chips_whose_numbers_do_not_serve_are_counted_through(ids: tuple[str, str]) -> None:
    metrics = new()
    metrics.node.set_runtime(
        Runtime(tuple(RuntimePort(8431 + place, (Chip(one, 5),)) for place, one in enumerate(ids)))
    )
    assert {key[1] for key in of(metrics, "tpuwatch_hbm_used_bytes")} == {"0", "1"}


def test_no_more_than_64_chips() -> None:
    metrics = new()
    metrics.node.set_runtime(Runtime((RuntimePort(8431, tuple(Chip(str(number), 5) for number in range(5000))),)))
    assert len(of(metrics, "tpuwatch_hbm_used_bytes")) == 64


def test_the_host() -> None:
    metrics = new()
    assert of(metrics, "tpuwatch_host_") == {}
    metrics.node.set_host(samples.host())
    seen = series(metrics)
    assert seen["tpuwatch_host_memory_available_bytes",] == 400 * 2**30
    assert seen["tpuwatch_host_memory_total_bytes",] == 448 * 2**30
    assert seen["tpuwatch_host_memory_pinned_bytes",] == 4 * 2**30
    assert seen["tpuwatch_host_oom_kills_total",] == 2
    assert seen["tpuwatch_host_boot_timestamp_seconds",] == samples.NOW - 86_000
    assert seen["tpuwatch_tpu_holders",] == 1
    metrics.node.set_host(Host(boot_id="x", booted=None))
    assert series(metrics)["tpuwatch_tpu_holders",] == 0
    assert of(metrics, "tpuwatch_host_") == {}


def test_notices() -> None:
    names = (
        "tpuwatch_maintenance_notice",
        "tpuwatch_maintenance_start_timestamp_seconds",
        "tpuwatch_preemption_notice",
    )

    def seen() -> list[float]:
        shown = series(metrics)
        return [shown[(name,)] for name in names]

    metrics = new()
    assert seen() == [0, 0, 0]
    coming = Notices(maintenance=Maintenance("SCHEDULED", "PENDING", 1234.5, None))
    metrics.node.set_notices(coming)
    assert seen() == [1, 1234.5, 0]
    metrics.node.set_notices(
        replace(coming, maintenance=Maintenance("UNSCHEDULED", "PENDING", None, None), preempted=True)
    )
    assert seen() == [1, 0, 1]
    metrics.node.set_notices(Notices(maintenance_event="TERMINATE_ON_HOST_MAINTENANCE"))
    assert seen() == [1, 0, 0]
    metrics.node.set_notices(Notices(terminating=True))
    assert seen() == [1, 0, 0]
    metrics.node.set_notices(Notices())
    assert seen() == [0, 0, 0]
    metrics.node.set_notices(coming)
    metrics.node.set_notices(None)
    assert seen() == [0, 0, 0]
