"""The dashboards: as their code makes them, and each panel says what it shows and where to go from it."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import pytest

from tests.paths import ROOT

DASHBOARDS = ROOT / "deploy" / "grafana" / "dashboards"
GOLDEN = ROOT / "tests" / "unit" / "metrics" / "golden" / "metrics.txt"
METRICS = ROOT / "docs" / "metrics.md"
NAMES = ("fleet", "launches", "node", "restarts")
SUFFIXES = ("_bucket", "_count", "_sum", "_total", "_info")


def document(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DASHBOARDS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def panels(name: str) -> list[dict[str, Any]]:
    return [panel for panel in document(name)["panels"] if panel["type"] != "row"]


def queries(name: str) -> list[str]:
    return [target["expr"] for panel in panels(name) for target in panel["targets"]]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the SDK needs Python 3.11")
def test_the_files_are_what_the_code_makes() -> None:
    from deploy.grafana.build import rendered

    made = rendered()
    assert sorted(made) == [f"{name}.json" for name in NAMES]
    for file, text in made.items():
        assert (DASHBOARDS / file).read_text(encoding="utf-8") == text, f"{file}: run make dashboards"


@pytest.mark.parametrize("name", NAMES)
def test_each_panel_has_a_description_thresholds_a_unit_and_a_page_that_exists(name: str) -> None:
    for panel in panels(name):
        title = panel["title"]
        assert len(panel["description"]) > len(title), title
        defaults = panel["fieldConfig"]["defaults"]
        assert defaults["thresholds"]["steps"][0]["value"] is None, title
        assert defaults["unit"], title
        (link,) = panel["links"]
        page = link["url"].removeprefix("https://tpuwatch.example.com/").partition("#")[0]
        assert (ROOT / "docs" / page).is_file(), f"{title}: {link['url']}"


@pytest.mark.parametrize("name", NAMES)
def test_panels_are_numbered_titled_apart_and_fill_their_rows(name: str) -> None:
    every = document(name)["panels"]
    assert [panel["id"] for panel in every] == list(range(1, len(every) + 1))
    titles = [panel["title"] for panel in every]
    assert len(set(titles)) == len(titles)
    for panel in every:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]


@pytest.mark.parametrize("name", NAMES)
def test_queries_name_metrics_that_are_documented(name: str) -> None:
    documented = set(re.findall(r"\b(?:tpuwatch|process)_[a-z_]+", METRICS.read_text() + GOLDEN.read_text()))
    for query in queries(name):
        for metric in re.findall(r"\b(?:tpuwatch|process)_[a-z_]+", query):
            known = {metric, *(metric.removesuffix(suffix) for suffix in SUFFIXES)}
            assert known & documented, f"{metric} in {query}"


@pytest.mark.parametrize("name", NAMES)
def test_a_state_that_has_a_series_only_while_it_holds_is_compared_with_1(name: str) -> None:
    state = r"\btpuwatch_(?:verdict|node_state|node_health)\b(?:\{[^}]*\})?(?P<rest>.{0,5})"
    for query in queries(name):
        for found in re.finditer(state, query):
            assert found["rest"] == " == 1", query


@pytest.mark.parametrize("name", NAMES)
def test_variables_come_from_the_chosen_prometheus(name: str) -> None:
    variables = {variable["name"]: variable for variable in document(name)["templating"]["list"]}
    assert variables.pop("datasource")["query"] == "prometheus"
    assert all(variable["datasource"]["uid"] == "${datasource}" for variable in variables.values())
    used = set(re.findall(r"\$([a-z_]+)", " ".join(queries(name)))) - {"__rate_interval", "__range"}
    assert used <= set(variables), used


def test_a_node_of_the_fleet_leads_to_its_own_dashboard() -> None:
    table = next(panel for panel in panels("fleet") if panel["title"] == "Nodes that do not train")
    links = [
        option["url"]
        for override in table["fieldConfig"]["overrides"]
        for property_ in override["properties"]
        if property_["id"] == "links"
        for option in property_["value"]
    ]
    (url,) = links
    assert url.startswith(f"/d/{document('node')['uid']}?")
    wanted = {variable["name"] for variable in document("node")["templating"]["list"]} - {"datasource", "instance"}
    assert set(re.findall(r"var-(\w+)=", url)) == wanted


def test_a_node_on_whose_verdict_daemons_differ_is_counted_once() -> None:
    counts = {panel["title"]: panel["targets"][0]["expr"] for panel in panels("fleet") if panel["type"] == "stat"}
    for title in ("Nodes", "Not training", "Stuck"):
        counted = re.match(r"count\((?:count|max) by \(([^)]*)\)", counts[title])
        assert counted, title
        assert counted[1] == "zone, node", title


def test_what_is_well_by_the_cloud_is_not_red() -> None:
    (timeline,) = (panel for panel in panels("node") if panel["title"].startswith("State and health"))
    colors = {
        override["matcher"]["options"]: override["properties"][0]["value"][0]["options"]["1"]["color"]
        for override in timeline["fieldConfig"]["overrides"]
    }
    assert (colors["READY"], colors["HEALTHY"]) == ("green", "green")
