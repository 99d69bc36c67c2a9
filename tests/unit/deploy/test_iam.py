"""deploy/iam.md, the roles beside it, what the doctor asks for and what the code calls: the same permissions."""

from __future__ import annotations

import re

from tests.paths import ROOT
from tpuwatch.config import Config
from tpuwatch.core import SystemClock
from tpuwatch.doctor import Environment
from tpuwatch.doctor.checks.permissions import _LEDGER, _needed
from tpuwatch.metrics.node import METHODS

ROWS = [
    (permission, set(re.findall(r"`([^`]+)`", calls)), granted)
    for permission, calls, granted in re.findall(
        r"^\| `([\w.]+)` \| (.*?) \| .* \| (.*?) \|$", (ROOT / "deploy/iam.md").read_text(), re.MULTILINE
    )
]
NO_PERMISSION = {"storage.buckets.testIamPermissions", "GetRuntimeMetric", "ListSupportedMetrics", "other"}


def role(name: str) -> list[str]:
    return re.findall(r"^  - (\S+)$", (ROOT / "deploy" / "iam" / name).read_text(), re.MULTILINE)


def test_the_table_has_what_the_doctor_asks_for() -> None:
    config = Config.model_validate(
        {
            "restart": {"restart_node": True, "reset_queued_resource": True},
            "monitoring": {"read": True, "export": True},
        }
    )
    asked = {name for names in _needed(Environment(config, {}, SystemClock())).values() for name in names}
    assert {permission for permission, _, _ in ROWS} == asked | set(_LEDGER)


def test_the_table_has_every_call_that_tpuwatch_makes() -> None:
    assert set().union(*(calls for _, calls, _ in ROWS)) == set(METHODS) - NO_PERMISSION


def test_the_roles_have_what_the_table_says_and_nothing_else() -> None:
    watching = {permission for permission, _, granted in ROWS if "`iam/role.yaml`" in granted}
    restarting = {permission for permission, _, granted in ROWS if "`iam/role-restart.yaml`" in granted}
    assert set(role("role.yaml")) == watching == {"tpu.nodes.get", "tpu.nodes.list"}
    assert set(role("role-restart.yaml")) == watching | restarting
    assert {permission for permission, _, _ in ROWS if permission.startswith("tpu.")} == watching | restarting
