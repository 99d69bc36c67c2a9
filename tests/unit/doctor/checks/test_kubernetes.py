from __future__ import annotations

from pathlib import Path

from tests.standins.doctor_machine import NOBODY, Place, described, statuses
from tests.standins.kubernetes_server import kubernetes_node, kubernetes_server
from tpuwatch.doctor.check import CheckStatus
from tpuwatch.doctor.environment import Environment


def pod(place: Place, account: Path, environ: dict[str, str]) -> Environment:
    config = {"kubernetes": {"service_account": str(account)}}
    return place.environment(config=config, environ={**NOBODY, **environ})


def test_it_says_whether_the_node_is_shown(place: Place, tmp_path: Path) -> None:
    with kubernetes_server(tmp_path / "pod") as server:
        environment = pod(place, server.account, server.environ)
        assert statuses("kubernetes", environment) == [CheckStatus.OK]
        sick = [{"type": "Ready", "status": "False", "reason": "KubeletNotReady"}]
        server.nodes["gke-tpu-1"] = kubernetes_node(conditions=sick)
        assert "Ready is False (KubeletNotReady)" in described("kubernetes", environment)[0]
        assert statuses("kubernetes", environment) == [CheckStatus.WRONG]
        server.status = 403
        assert statuses("kubernetes", environment) == [CheckStatus.WRONG]
        assert "apply the ClusterRole" in described("kubernetes", environment)[0]
        server.status = 500
        assert statuses("kubernetes", environment) == [CheckStatus.UNKNOWN]
        unnamed = pod(place, server.account, {**server.environ, "NODE_NAME": ""})
        assert statuses("kubernetes", unnamed) == [CheckStatus.WRONG]


def test_outside_of_a_pod_it_is_skipped(place: Place) -> None:
    assert statuses("kubernetes", place.environment(environ=NOBODY)) == [CheckStatus.SKIPPED]
