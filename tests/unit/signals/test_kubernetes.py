from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.standins.kubernetes_server import KubernetesServer, kubernetes_node, kubernetes_server
from tpuwatch.config.schema import KubernetesConfig
from tpuwatch.core.clock import SystemClock
from tpuwatch.model.answers import Answer, Problem
from tpuwatch.model.signals import Maintenance, Notices
from tpuwatch.signals.kubernetes import ACTIVE, LATEST, SCHEDULED, TERMINATION, KubernetesSignal, in_cluster, parse_node

NOW = 1_790_000_000.0
NAME = "gke-tpu-1"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[KubernetesServer]:
    with kubernetes_server(tmp_path) as server:
        yield server


def signal_of(server: KubernetesServer, *, seconds: float = 30.0, **environ: str) -> KubernetesSignal:
    config = KubernetesConfig(service_account=server.account, timeout_seconds=seconds)
    return KubernetesSignal(config, {**server.environ, **environ}, clock=SystemClock(), rng=random.Random(1))


def parsed(**more: Any) -> Notices | None:
    return parse_node(kubernetes_node(**more), NAME, NOW)


def test_a_node_that_is_well_announces_nothing(server: KubernetesServer) -> None:
    answer = signal_of(server).ask()
    assert (answer.value, answer.problem, answer.at) == (Notices(), None, answer.tried)
    assert server.asked == [f"/api/v1/nodes/{NAME}?resourceVersion=0"]


@pytest.mark.parametrize(
    ("allocatable", "conditions"),
    [("0", ("0 of 4 TPUs are allocatable",)), ("3", ("3 of 4 TPUs are allocatable",)), ("4", ()), ("none", ())],
)
def test_tpus_that_no_pod_can_have_make_the_node_ill(allocatable: str, conditions: tuple[str, ...]) -> None:
    assert parsed(allocatable=allocatable) == Notices(conditions=conditions)


def test_label_taint_and_conditions_are_notices(server: KubernetesServer) -> None:
    server.nodes[NAME] = kubernetes_node(
        labels={SCHEDULED: "4000000000"},
        taints=[{"key": TERMINATION, "effect": "NoSchedule"}],
        conditions=[
            {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"},
            {"type": "DiskPressure", "status": "True", "reason": "\x1b[31m"},
            {"type": "MemoryPressure", "status": "Unknown"},  # unknown is never unhealthy
            {"type": "SomebodysOwnReady", "status": "True"},
        ],
    )
    assert signal_of(server).ask().value == Notices(
        maintenance=Maintenance("SCHEDULED", "PENDING", 4_000_000_000.0, None),
        terminating=True,
        conditions=("Ready is Unknown (NodeStatusUnknown)", "DiskPressure is True"),
    )


@pytest.mark.parametrize("where", ["labels", "annotations"])
def test_a_maintenance_under_way_is_ongoing(where: str) -> None:
    found = parsed(**{where: {ACTIVE: "ONGOING"}})
    assert found == Notices(maintenance=Maintenance("UNSCHEDULED", "ONGOING", None, None))


@pytest.mark.parametrize("label", ["soon", "", "-1", "9" * 40, f"{NOW - 7200:.0f}", 5, None])
def test_a_time_that_is_none_or_long_past_announces_nothing(label: Any) -> None:
    assert parsed(labels={SCHEDULED: label}) == Notices()


def test_a_maintenance_that_may_still_begin_is_pending() -> None:
    begun, latest = NOW - 7200, NOW + 600
    found = parsed(labels={SCHEDULED: f"{begun:.0f}", LATEST: f"{latest:.0f}"})
    assert found == Notices(maintenance=Maintenance("SCHEDULED", "PENDING", begun, None, latest))


@pytest.mark.parametrize(
    "document", [None, [], {}, {"metadata": {"name": "another"}}, {"kind": "Pod", "metadata": {"name": NAME}}]
)
def test_what_is_not_the_node_is_no_answer(document: Any) -> None:
    assert parse_node(document, NAME, NOW) is None


def test_parts_of_another_form_are_passed_over() -> None:
    document = {"metadata": {"name": NAME, "labels": 5}, "spec": {"taints": ["x"]}, "status": {"conditions": {"a": 1}}}
    assert parse_node(document, NAME, NOW) == Notices()


@pytest.mark.parametrize(
    ("status", "problem"),
    [
        (403, Problem.DENIED),
        (404, Problem.GONE),
        (429, Problem.THROTTLED),
        (503, Problem.SERVER),
        (302, Problem.FOREIGN),
    ],
)
def test_a_refusal_is_unknown_and_the_last_answer_stays(
    server: KubernetesServer, status: int, problem: Problem
) -> None:
    signal = signal_of(server)
    first = signal.ask()
    server.status = status
    answer = signal.ask()
    assert (answer.problem, answer.value, answer.at) == (problem, first.value, first.at)
    assert str(status) in answer.detail


def test_a_renewed_token_is_read_again(server: KubernetesServer) -> None:
    signal = signal_of(server)
    assert signal.ask().problem is None
    server.token = "second.token-of_the.account"  # noqa: S105 (of nothing)
    answer = signal.ask()
    assert answer.problem is Problem.CREDENTIALS
    assert "first.token" not in answer.detail
    server.give(server.token)
    assert signal.ask().problem is None


def test_a_renewed_authority_is_read_again(server: KubernetesServer) -> None:
    signal = signal_of(server)
    assert signal.ask().problem is None
    server.renew_certificates(mounted=False)
    answer = signal.ask()
    assert answer.problem is Problem.FOREIGN
    assert "certificate is not accepted" in answer.detail
    server.mount()
    assert signal.ask().problem is None


def test_the_token_goes_to_no_server_of_another_authority(server: KubernetesServer) -> None:
    server.renew_certificates(mounted=False)
    assert signal_of(server).ask().problem is Problem.FOREIGN
    assert server.asked == []


def test_files_that_come_late_are_found(server: KubernetesServer) -> None:
    (server.account / "ca.crt").unlink()
    signal = signal_of(server)
    answer = signal.ask()
    assert answer.problem is Problem.CREDENTIALS
    assert "ca.crt cannot be read" in answer.detail
    server.mount()
    assert signal.ask().problem is None


def test_a_server_that_says_nothing_ends_at_the_deadline(server: KubernetesServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        answer = signal_of(server, seconds=0.1, KUBERNETES_SERVICE_PORT=str(mute.getsockname()[1])).ask()
    assert answer.problem is Problem.TIMEOUT


def test_close_ends_a_request_that_waits(server: KubernetesServer) -> None:
    signal = signal_of(server, seconds=60.0)
    server.answers.clear()
    answers: list[Answer[Notices]] = []
    asking = threading.Thread(target=lambda: answers.append(signal.ask()), daemon=True)
    asking.start()
    assert server.arrived.wait(30)
    signal.close()
    asking.join(30)
    assert [answer.problem for answer in answers] == [Problem.UNREACHABLE]
    assert signal.ask().problem is Problem.UNREACHABLE
    assert len(server.asked) == 1


def test_without_its_nodes_name_it_asks_nobody(server: KubernetesServer) -> None:
    answer = signal_of(server, NODE_NAME="").ask()
    assert (answer.problem, server.asked) == (Problem.UNCONFIGURED, [])
    assert "NODE_NAME" in answer.detail


def test_only_a_pod_with_a_token_is_in_a_cluster(server: KubernetesServer, tmp_path: Path) -> None:
    config = KubernetesConfig(service_account=server.account)
    assert in_cluster(config, server.environ)
    assert not in_cluster(config, {"NODE_NAME": NAME})
    assert not in_cluster(KubernetesConfig(service_account=tmp_path), server.environ)
