"""The rules for Prometheus: what each alert has, what it names, and when it fires."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families as parse_text

from deploy.prometheus import __main__ as findings
from tests.paths import ROOT
from tests.standins.certificates import Authority
from tests.unit.deploy.alerts import PROMETHEUS, RULES, RUNBOOK_URL, RUNBOOKS, alerts, rules
from tests.unit.metrics.test_registry import filled, scrape
from tpuwatch.model import Cause

ALERTS = alerts()
LOOPS = {"logs", "host", "judge", "restart", "tune"}  # of a real daemon; a proof with one holds the alert against it
ONLY_WHILE_HELD = (
    "tpuwatch_verdict",
    "tpuwatch_node_state",
    "tpuwatch_node_health",
    "tpuwatch_finding",
)  # the others have no series
SECTIONS = ["How to see it", "What tpuwatch does by itself", "What to do"]
CASES = sorted(PROMETHEUS.glob("*.test.yml"))
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed (Debian package prometheus)"
)


def promtool(*words: str) -> str:
    """What is wrong, by promtool; "" if nothing is."""
    done = subprocess.run(["promtool", *words], capture_output=True, text=True, timeout=120, check=False)  # noqa: S607 # wherever the system has it
    return "" if done.returncode == 0 else done.stdout + done.stderr


@needs_promtool
@pytest.mark.parametrize("file", RULES, ids=lambda file: file.name)
def test_the_rules_are_valid(file: Path) -> None:
    assert promtool("check", "rules", "--lint=all", "--lint-fatal", str(file)) == ""


@pytest.mark.slow
@needs_promtool
@pytest.mark.parametrize("file", CASES, ids=lambda file: file.name)
def test_each_alert_fires_when_it_should_and_only_then(file: Path) -> None:
    assert promtool("test", "rules", str(file)) == ""


def test_each_alert_has_a_case_that_fires_and_one_that_does_not() -> None:
    seen: dict[str, set[bool]] = {}
    for file in CASES:
        for case in yaml.safe_load(file.read_text())["tests"]:
            for one in case["alert_rule_test"]:
                assert case["name"].startswith(f"{one['alertname']} ")
                seen.setdefault(one["alertname"], set()).add(bool(one["exp_alerts"]))
    assert seen == {name: {True, False} for name in ALERTS}


def test_what_is_made_from_the_table_of_causes_is_up_to_date() -> None:
    assert findings.with_findings(rules := findings.RULES.read_text()) == rules, "run `make alerts`"
    assert findings.with_causes(page := findings.PAGE.read_text()) == page, "run `make alerts`"
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == [cause.value for cause in Cause]


def test_each_cause_has_an_alert_or_a_reason_for_none() -> None:
    for cause in Cause:
        alert = cause.row.alert
        assert alert in ALERTS or re.fullmatch(r"none: .{10,}", alert), cause
        assert alert not in ALERTS or cause.is_fault
        named = re.findall(r'cause=~?"([^"]+)"', ALERTS.get(alert, {}).get("expr", ""))
        assert not named or cause.value in named[0].split("|"), f"{alert} is not about {cause}"


@pytest.mark.parametrize("name", ALERTS)
def test_each_alert_tells_what_to_do(name: str) -> None:
    alert = ALERTS[name]
    assert re.fullmatch(r"Tpuwatch([A-Z][a-z]+)+", name)
    assert set(alert["labels"]) == {"severity"}
    assert alert["labels"]["severity"] in ("critical", "warning", "info")
    notes = alert["annotations"]
    assert set(notes) == {"summary", "description", "runbook_url"}
    assert notes["runbook_url"] == RUNBOOK_URL + name
    assert len(notes["summary"]) < 100
    assert re.search(r"(\.|{{ end }}) First|Nothing has to be done", notes["description"]), "what to do first"
    values = "{{ $" in notes["description"]
    assert values or name in ("TpuwatchAbsent", "TpuwatchBreakerOpen"), "how much, or of what"


def test_a_gap_of_sight_resolves_no_alert_about_a_node() -> None:
    about_nodes = {name for name, alert in ALERTS.items() if "(zone, node" in alert["expr"]}
    bridged = {name for name, alert in ALERTS.items() if "keep_firing_for" in alert}
    assert about_nodes - bridged == {"TpuwatchNodeUnknown"}
    assert {ALERTS[name]["keep_firing_for"] for name in bridged} == {"10m"}


def test_what_is_counted_and_its_noun_agree_whatever_the_number() -> None:
    """A number stands before no noun in the plural: there may be one."""
    for name, alert in ALERTS.items():
        found = re.findall(r'\{\{ \$value(?: \| printf "%.0f")? \}\} (\w+)', alert["annotations"]["description"])
        assert found == [], name


def test_each_alert_has_its_runbook_and_each_runbook_its_alert() -> None:
    pages = {file.stem: file.read_text() for file in RUNBOOKS.glob("*.md")}
    rows = re.findall(
        r"^\| \[(\w+)\]\((\w+)\.md\) \| (\w+) \| (at once|\d+[mh]) \|$", pages.pop("README"), re.MULTILINE
    )
    assert set(pages) == set(ALERTS)
    facts = [(name, name, alert["labels"]["severity"], alert.get("for", "at once")) for name, alert in ALERTS.items()]
    assert rows == facts, "docs/runbooks/README.md"
    for name, page in pages.items():
        assert page.startswith(f"# {name}\n\nSeverity {ALERTS[name]['labels']['severity']}. ")
        assert re.findall("^## (.*)", page, re.MULTILINE) == SECTIONS, name


def test_each_metric_label_and_value_exists() -> None:
    exported: dict[str, dict[str, set[str]]] = {}
    for family in parse_text(scrape(filled())):
        for sample in family.samples:
            for label, value in sample.labels.items():
                exported.setdefault(sample.name, {}).setdefault(label, set()).add(value)
            exported.setdefault(sample.name, {})
    wrong = []
    for rule in rules():
        for metric, matchers in re.findall(r"(?<![\w:])(tpuwatch_\w+)(?!:)\b(?:\{([^}]*)\})?", rule["expr"]):
            if metric not in exported:
                wrong.append(f"{metric} is not exported")
                continue
            for label, values in re.findall(r'(\w+)(?:=|!=|=~|!~)"([^"]*)"', matchers):
                known = exported[metric].get(label, set()) | (LOOPS if label == "loop" else set())
                wrong += [f"{metric} has no {label}={value!r}" for value in values.split("|") if value not in known]
    assert wrong == []


@needs_promtool
def test_documented_scrape_configurations_are_valid(tmp_path: Path) -> None:
    checked = 0
    Authority(tmp_path)  # ca.pem
    (tmp_path / "token").write_text("an-example-token\n")
    for document in (ROOT / "docs" / "alerts.md", ROOT / "docs" / "metrics.md"):
        for block in re.findall(r"```yaml\n(.*?)```", document.read_text(), re.DOTALL):
            found = yaml.safe_load(block.replace("/etc/prometheus/tpuwatch/", f"{tmp_path}/"))
            config = found["receivers"]["prometheus"]["config"] if "receivers" in found else found
            if "rule_files" in config:
                config["rule_files"] = [str(PROMETHEUS / Path(name).name) for name in config["rule_files"]]
            file = tmp_path / f"{checked}.yml"
            file.write_text(yaml.safe_dump(config))
            assert promtool("check", "config", str(file)) == ""
            assert all(scrape["honor_labels"] for scrape in config["scrape_configs"])
            checked += 1
    assert checked == 5


def test_what_has_a_series_only_while_it_holds_is_never_compared_with_0() -> None:
    for rule in rules():
        for metric in ONLY_WHILE_HELD:
            assert not re.search(rf"{metric}(?:\{{[^}}]*\}})? *(?:== 0|!= 1|< 1)", rule["expr"]), rule
