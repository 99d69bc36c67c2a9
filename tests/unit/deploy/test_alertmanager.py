"""The routes and inhibitions for Alertmanager."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.paths import ROOT
from tests.unit.deploy.alerts import alerts

FILE = ROOT / "deploy" / "alertmanager" / "alertmanager.yml"
CONFIG: dict[str, Any] = yaml.safe_load(FILE.read_text())
NODE_DOWN = {"TpuwatchNodePreempted", "TpuwatchNodeGone", "TpuwatchNodeStopped"}
IN_NODE = {"TpuwatchRuntimeStuck", "TpuwatchJobStuck", "TpuwatchSilentStart"}
ABOUT_NODE = {
    "TpuwatchNodeStuck",
    "TpuwatchNodeUnhealthy",
    "TpuwatchNodeUnknown",
    "TpuwatchWorkerSilent",
    "TpuwatchWorkerUnheard",
    "TpuwatchDown",
    "TpuwatchMachineFault",
}
needs_amtool = pytest.mark.skipif(
    shutil.which("amtool") is None, reason="amtool is not installed (Debian package prometheus-alertmanager)"
)


def amtool(*words: str) -> str:
    """What is wrong, by amtool; "" if nothing is."""
    done = subprocess.run(["amtool", *words], capture_output=True, text=True, timeout=60, check=False)  # noqa: S607 # wherever the system has it
    return "" if done.returncode == 0 else done.stdout + done.stderr


@needs_amtool
def test_the_configuration_is_valid() -> None:
    assert amtool("check-config", str(FILE)) == ""


def test_the_linter_has_nothing_to_say() -> None:
    command = [str(Path(sys.executable).with_name("amlint")), "check", str(FILE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not re.search(r"ERROR|WARN|INFO", done.stdout), done.stdout


@needs_amtool
@pytest.mark.parametrize(
    ("labels", "receivers"),
    [
        ("alertname=TpuwatchNodeStuck severity=critical zone=us-east5-a node=train-1", "webhook,pagerduty"),
        ("alertname=TpuwatchNodePreempted severity=warning zone=us-east5-a node=train-1", "webhook,slack"),
        ("alertname=TpuwatchMaintenanceAhead severity=info zone=us-east5-a node=train-1", "webhook,slack-quiet"),
        ("alertname=TpuwatchBreakerOpen severity=critical job=tpuwatch", "webhook,pagerduty"),
        ("alertname=TpuwatchLedgerDown severity=warning instance=watcher:9478", "webhook,slack"),
        ("alertname=TpuwatchMachineFault severity=warning cause=core_halted zone=z node=train-1", "webhook,slack"),
        ("alertname=TpuwatchSlowStart severity=info instance=10.0.0.5:9478", "webhook,slack-quiet"),
    ],
)
def test_who_gets_an_alert(labels: str, receivers: str) -> None:
    wanted = f"--verify.receivers={receivers}"
    assert amtool("config", "routes", "test", f"--config.file={FILE}", wanted, *labels.split()) == ""


def inhibited_by(alert: str) -> set[str]:
    """What is not sent while this one fires on the same node."""
    targets: set[str] = set()
    for rule in CONFIG["inhibit_rules"]:
        if rule["equal"] == ["zone", "node"] and _matches(rule["source_matchers"], alert):
            targets |= {other for other in alerts() if _matches(rule["target_matchers"], other)}
    return targets


def _matches(matchers: list[str], alert: str) -> bool:
    (matcher,) = matchers
    found = re.fullmatch(r'alertname=~?"([^"]+)"', matcher)
    assert found is not None
    return re.fullmatch(found[1], alert) is not None


def test_a_maintenance_silences_what_it_explains() -> None:
    assert inhibited_by("TpuwatchNodeMaintenance") == ABOUT_NODE | IN_NODE | {"TpuwatchNodeStopped"}
    assert inhibited_by("TpuwatchMaintenanceAhead") == set(), "it is announced days before"


def test_a_node_silences_its_runtime_and_its_job() -> None:
    for gone in sorted(NODE_DOWN):
        assert inhibited_by(gone) == ABOUT_NODE | IN_NODE
    stuck = inhibited_by("TpuwatchNodeStuck")
    assert stuck == IN_NODE | {"TpuwatchNodeUnhealthy", "TpuwatchSignalFailing", "TpuwatchDown", "TpuwatchMachineFault"}
    assert inhibited_by("TpuwatchRuntimeStuck") == {"TpuwatchJobStuck", "TpuwatchSilentStart"}
    assert inhibited_by("TpuwatchJobStuck") == set()


def test_nothing_that_a_person_has_to_do_is_silenced() -> None:
    needed = {"TpuwatchPersonNeeded", "TpuwatchWaitingForCapacity", "TpuwatchRestartUnrecorded", "TpuwatchBreakerOpen"}
    assert needed & {target for alert in alerts() for target in inhibited_by(alert)} == set()


def test_secrets_are_in_files() -> None:
    keys = {key for key in _keys(CONFIG) if re.search(r"key|token|url|credentials|password|secret", key)}
    assert {key for key in keys if not key.endswith("_file")} == {"url"}
    assert CONFIG["receivers"][0]["webhook_configs"][0]["url"].startswith("http://127.0.0.1:")


def _keys(document: object) -> set[str]:
    if isinstance(document, dict):
        return set(document) | {key for value in document.values() for key in _keys(value)}
    return {key for value in document for key in _keys(value)} if isinstance(document, list) else set()
