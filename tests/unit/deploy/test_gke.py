"""deploy/gke: what the DaemonSet relies on, and the rules as objects of Kubernetes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
import yaml

from deploy.gke.rules import wrapped
from tests.paths import ROOT
from tpuwatch.config import load_config

GKE = ROOT / "deploy" / "gke"
RULES = """\
# A comment.
groups:
  - name: one
    rules:
      - alert: Stuck
        expr: |
          up
          == 0
  - name: two
    rules: []
"""


def manifest() -> str:
    return (GKE / "tpuwatch.yaml").read_text()


def test_its_configuration_is_valid_and_serves_where_the_probes_ask(tmp_path: Path) -> None:
    text = manifest().partition("config.toml: |\n")[2].partition("---")[0]
    file = tmp_path / "config.toml"
    file.write_text(dedent(text))
    config = load_config(file, {})
    assert config.http.address[1] == int(re.findall(r"containerPort: (\d+)", manifest())[0])
    assert config.http.address[0] == "0.0.0.0"  # noqa: S104 (the probes come from outside of the pod)


def test_what_is_not_its_own_is_mounted_to_be_read_only() -> None:
    mounts = re.findall(r"- name: (\w+)\n +mountPath: (\S+)(\n +readOnly: true)?", manifest())
    assert {name for name, _, read_only in mounts if not read_only} == {"state"}
    assert {path for _, path, _ in mounts} >= {"/tmp", "/var/log/pods", "/etc/tpuwatch"}  # noqa: S108


def test_its_service_account_may_get_nodes_and_nothing_else() -> None:
    assert re.findall(r"serviceAccountName: (\w+)", manifest()) == ["tpuwatch"]
    (rules,) = re.findall(r"kind: ClusterRole\nmetadata:\n  name: tpuwatch\nrules:\n(.*?)---", manifest(), re.DOTALL)
    assert rules == '  - apiGroups: [""]\n    resources: [nodes]\n    verbs: [get]\n'
    (subjects,) = re.findall(r"subjects:\n(.*?)---", manifest(), re.DOTALL)
    assert subjects == "  - kind: ServiceAccount\n    name: tpuwatch\n    namespace: tpuwatch\n"
    assert "fieldPath: spec.nodeName" in manifest().partition("- name: NODE_NAME\n")[2][:120]


def test_all_monitors_select_the_pods_of_the_daemon_set() -> None:
    label = "app.kubernetes.io/name: tpuwatch"
    assert all(label in path.read_text() for path in GKE.glob("*.yaml"))


def test_rules_are_wrapped_as_they_are() -> None:
    operator = wrapped("PrometheusRule", "tpuwatch", RULES)
    assert operator.startswith("apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\n")
    assert dedent(operator.partition("spec:\n")[2]) == RULES


def test_managed_rules_have_an_interval_in_each_group() -> None:
    managed = wrapped("Rules", "tpuwatch", RULES)
    assert managed.startswith("apiVersion: monitoring.googleapis.com/v1\nkind: Rules\n")
    assert re.findall(r"- name: (\w+)\n      interval: 30s\n", managed) == ["one", "two"]
    assert dedent(managed.partition("spec:\n")[2]).replace("    interval: 30s\n", "") == RULES


def test_managed_rules_are_without_the_field_that_they_do_not_have() -> None:
    shipped = (ROOT / "deploy" / "prometheus" / "tpuwatch.rules.yml").read_text()
    assert yaml.safe_load(wrapped("PrometheusRule", "tpuwatch", shipped))["spec"] == yaml.safe_load(shipped)
    managed = yaml.safe_load(wrapped("Rules", "tpuwatch", shipped))["spec"]
    fields = {field for group in managed["groups"] for rule in group["rules"] for field in rule}
    assert fields == {"record", "alert", "expr", "for", "labels", "annotations"}


@pytest.mark.parametrize("words", [[], ["Rule"], ["Rules", "more"]])
def test_another_kind_is_answered_with_the_kinds(words: list[str]) -> None:
    command = (sys.executable, str(GKE / "rules.py"), *words)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "PrometheusRule|Rules" in done.stderr
