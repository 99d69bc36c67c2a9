"""`tpuwatch nodes`."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

import pytest

from tests.standins.http_daemon import answering
from tests.unit.web import samples
from tests.unit.web.samples import SampleView
from tpuwatch.cli import nodes
from tpuwatch.cli.main import main
from tpuwatch.model.judged_queued_resource import QueuedProblem
from tpuwatch.model.status import SignalStatus
from tpuwatch.model.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def view(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SampleView]:
    view = SampleView(
        watched=[
            samples.node(),
            samples.node("train-2", Verdict.UNKNOWN, cloud=None),
            samples.node("train-3", Verdict.PREEMPTED),
            samples.node("train-4", Verdict.NODE_STUCK),
        ]
    )
    with answering(view, tmp_path, monkeypatch):
        yield view


@pytest.mark.usefixtures("view")
def test_each_cell_is_one_token_with_the_word_of_the_json(capsys: Capture) -> None:
    assert main(["nodes", "-o", "wide"]) == 1
    header, *rows = capsys.readouterr().out.partition("\n\n")[0].splitlines()
    columns = header.split()
    assert columns[-1] == "PROJECT"
    cells = [dict(zip(columns, row.split(), strict=True)) for row in rows]
    main(["nodes", "-o", "json"])
    listed = json.loads(capsys.readouterr().out)["nodes"]
    assert [(cell["VERDICT"], cell["ACTION"]) for cell in cells] == [(n["verdict"], n["action"]) for n in listed]
    assert cells[0]["CLOUD"] == "READY/HEALTHY"
    assert {cell["ACCELERATOR"] for cell in cells} == {"v5litepod-4", "-"}


@pytest.fixture
def queued(view: SampleView) -> SampleView:
    """A watcher all of whose nodes are well, and with queued resources."""
    view.watched[:] = [samples.node(), samples.node("next-node", Verdict.STARTING, cloud=None)]
    ended = samples.queued("dead", "FAILED", QueuedProblem.ENDED, nodes=tuple(f"n{number}" for number in range(9)))
    found = (ended, samples.queued("next", "WAITING_FOR_RESOURCES"), samples.queued("far", "ACTIVE", zone="eu-b"))
    view.shown = samples.status(queued_resources=found)
    return view


@pytest.mark.usefixtures("queued")
def test_queued_resources_stand_under_the_nodes_with_what_to_do(capsys: Capture) -> None:
    assert main(["nodes"]) == 1  # all nodes are well, and quota is held for nothing
    _, table, full, *_ = capsys.readouterr().out.split("\n\n")
    assert [line.split() for line in table.splitlines()] == [
        ["QUEUED-RESOURCE", "ZONE", "STATE", "AGE", "NODES", "PROBLEM"],
        ["dead", "us-central2-b", "FAILED", "1d", "n0,n1,n2,+6", "ended"],
        ["next", "us-central2-b", "WAITING_FOR_RESOURCES", "1d", "next-node", "-"],
        ["far", "eu-b", "ACTIVE", "1d", "far-node", "-"],
    ]
    assert full.splitlines()[:2] == ["Queued resource us-central2-b/dead: ended", "   It is FAILED, which is ended."]
    assert "gcloud compute tpus queued-resources describe dead" in full


@pytest.mark.usefixtures("queued")
def test_queued_resources_of_a_zone_of_nodes_and_with_problems_alone(capsys: Capture) -> None:
    def shown(*words: str) -> tuple[int, list[str]]:
        code = main(["nodes", "--json", *words])
        return code, [one["name"] for one in json.loads(capsys.readouterr().out)["queued_resources"]]

    assert shown() == (1, ["dead", "next", "far"])
    assert shown("--problems") == (1, ["dead"])
    assert shown("next-node") == (0, ["next"])
    assert shown("train-1") == (0, [])
    assert shown("--zone", "us-central2-b") == (1, ["dead", "next"])


@pytest.mark.usefixtures("queued")
def test_the_status_names_queued_resources_with_a_problem(capsys: Capture) -> None:
    assert main(["status"]) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("1 problem: queued resource us-central2-b/dead is ended\n")
    assert "Queued resource us-central2-b/dead: ended. It is FAILED, which is ended. What to do:" in printed
    assert "us-central2-b/next" not in printed


@pytest.mark.usefixtures("view")
def test_problems_alone_and_names_alone(capsys: Capture) -> None:
    assert main(["nodes", "--problems", "-o", "name"]) == 1
    assert capsys.readouterr().out == "us-central2-b/train-4\nus-central2-b/train-3\n"
    assert main(["nodes", "train-[12]", "--problems", "-o", "name"]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.usefixtures("view")
def test_patterns_of_names(capsys: Capture) -> None:
    assert main(["nodes", "tr*-3", "-o", "name"]) == 1
    assert capsys.readouterr().out == "us-central2-b/train-3\n"
    assert main(["nodes", "x*"]) == 3
    assert "no node 'x*' is watched" in capsys.readouterr().err


def test_a_name_in_two_zones(view: SampleView, capsys: Capture) -> None:
    view.watched.append(samples.node("train-3", Verdict.GONE, zone="europe-west4-b"))
    assert main(["nodes", "train-3", "-o", "name"]) == 1
    assert set(capsys.readouterr().out.split()) == {"us-central2-b/train-3", "europe-west4-b/train-3"}
    for words in (["train-3", "--zone", "europe-west4-b"], ["europe-west4-b/*"], ["--zone", "europe-west4-b"]):
        assert main(["nodes", *words, "-o", "name"]) == 1
        assert capsys.readouterr().out == "europe-west4-b/train-3\n"
    assert main(["nodes", "europe-west4-b/train-3"]) == 1
    assert "\neurope-west4-b/train-3: gone since" in capsys.readouterr().out
    assert main(["nodes", "--zone", "europe-west4-c"]) == 3
    assert "no node of the zone 'europe-west4-c' is watched; did you mean 'europe-west4-b'?" in capsys.readouterr().err


def test_watch_prints_what_changes(view: SampleView, capsys: Capture) -> None:
    changes = iter(
        [
            lambda: None,
            lambda: view.watched.__setitem__(0, samples.node("train-1", Verdict.NODE_STUCK)),
            lambda: view.watched.__setitem__(3, samples.node("train-4")),
        ]
    )
    printed = []

    def wait(seconds: float) -> bool:
        assert seconds == nodes.WATCH_SECONDS
        printed.append(capsys.readouterr().out.split())
        change = next(changes, None)
        if change is not None:
            change()
        return change is None

    parser = argparse.ArgumentParser()
    nodes.add_arguments(parser)
    assert nodes.run(parser.parse_args(["--watch", "-o", "name"]), wait) == 1
    names = [[label.removeprefix("us-central2-b/") for label in labels] for labels in printed]
    assert names == [["train-4", "train-3", "train-2", "train-1"], [], ["train-1"], ["train-4"]]


@pytest.mark.usefixtures("view")
def test_verbose_prints_the_bad_nodes_in_full(capsys: Capture) -> None:
    assert main(["nodes", "--verbose"]) == 1
    printed = capsys.readouterr().out
    assert printed.count("   Why:") == 2
    assert printed.index("train-4: node_stuck since") < printed.index("train-3: preempted since")
    assert "train-2: unknown" not in printed


@pytest.mark.usefixtures("view")
def test_named_nodes_alone_whatever_they_are(capsys: Capture) -> None:
    assert main(["nodes", "train-1", "train-2"]) == 0  # unknown is never unhealthy
    printed = capsys.readouterr().out
    assert "train-1: healthy since" in printed
    assert "train-2: unknown since" in printed
    assert "train-4" not in printed
    assert "4 nodes" not in printed
    assert main(["nodes", "train-3"]) == 1


def test_of_many_nodes_that_a_pattern_finds_each_has_a_line(view: SampleView, capsys: Capture) -> None:
    view.watched.extend(samples.node(f"train-{number}", Verdict.NODE_STUCK) for number in range(5, 301))
    assert main(["nodes", "train-*"]) == 1
    assert len(capsys.readouterr().out.splitlines()) == 1 + 300
    assert main(["nodes", "train-*", "--verbose"]) == 1
    assert capsys.readouterr().out.count(": node_stuck since") == 297
    assert main(["nodes", "train-4*", "--problems", "--zone", "us-central2-b"]) == 1
    assert "Why:" not in capsys.readouterr().out
    assert main(["nodes", "train-[4]"]) == 1
    assert "Why:" in capsys.readouterr().out


def test_no_view_begins_with_an_empty_line(view: SampleView, capsys: Capture) -> None:
    view.watched[:] = [samples.node(), samples.node("train-2")]
    for words in (["--problems"], ["--problems", "train-*"], ["train-*"], []):
        assert main(["nodes", *words]) == 0
        assert capsys.readouterr().out.splitlines()[0]


def test_a_node_that_is_not_watched(view: SampleView, capsys: Capture) -> None:
    assert main(["nodes", "train-1", "tran-4"]) == 3
    assert capsys.readouterr() == ("", "tpuwatch: no node 'tran-4' is watched; did you mean 'train-4'?\n")
    view.watched.clear()
    assert main(["nodes", "x"]) == 3
    assert "`nodes` under [cloud] sets them" in capsys.readouterr().err


@pytest.mark.usefixtures("view")
def test_json(capsys: Capture) -> None:
    assert main(["nodes", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert [node["verdict"] for node in document["nodes"]] == ["node_stuck", "preempted", "unknown", "healthy"]
    assert document["watched"] == 4
    assert main(["nodes", "--json", "train-1"]) == 0
    assert [node["node"] for node in json.loads(capsys.readouterr().out)["nodes"]] == ["train-1"]


def test_nobody_is_watched(view: SampleView, capsys: Capture) -> None:
    view.watched.clear()
    assert main(["nodes"]) == 0
    assert "No node is watched. Set `nodes`, `project` and `zone` under [cloud]" in capsys.readouterr().out


def test_before_the_first_verdict_no_node_is_said_to_be_unwatched(view: SampleView, capsys: Capture) -> None:
    view.watched.clear()
    view.shown = samples.status(signals=(SignalStatus("cloud", None, None, None, ""),))
    for words in ([], ["--problems"], ["train-1"], ["--zone", "us-central2-b"]):
        assert main(["nodes", *words]) == 3
        assert capsys.readouterr() == ("No node is judged yet.\n", "")
    assert main(["nodes", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["nodes"] == []


def test_more_nodes_than_a_page_of_the_api_has_by_default(view: SampleView, capsys: Capture) -> None:
    view.watched[:] = [samples.node(f"train-{number}") for number in range(1500)]
    assert main(["nodes"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1503
