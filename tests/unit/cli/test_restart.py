"""`tpuwatch restart` of nodes, over a simulated cloud and Google's own client."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.standins.http_daemon import answering
from tests.standins.machine import Machine
from tests.standins.simulated import ZONE as SIM_ZONE
from tests.standins.simulated import simulated
from tests.unit.cli.restarting import PROJECT, ZONE, Site, flat, site, target
from tests.unit.web import samples
from tpuwatch.model.restart import Claim, Lease, Phase
from tpuwatch.model.verdict import Action, Verdict
from tpuwatch.program import run_probe
from tpuwatch.restart.operator.access import open_access
from tpuwatch.restart.operator.targets import OwnNode
from tpuwatch.restart.workflow.types import PresentEvidence, Standing, Within
from tpuwatch.signals.probe import read_probe
from tpuwatch.sim.cloud.faults import InjectedFault
from tpuwatch.terminal.restart import RestartDisplay

__all__ = ["site"]  # a fixture


def test_restart_of_one_node(site: Site) -> None:
    node = site.add()
    code, out, err = site.run("train-1", "--yes", "--reason", "It hangs.")
    assert (code, err, node.state, node.boots) == (0, "", "READY", 2)
    assert site.calls() == ["StopNode", "StartNode"]
    text = flat(out)
    for words in (
        "train-1 (zone us-east5-a, project lab): unknown",
        "The API says READY and TIMEOUT",
        "The node is stopped and started again",
        "what its jobs have not written to a checkpoint is lost",
        "A stop gives the capacity back",
        "Restarts of this node within 24 h: 0 of 3",
        "Node train-1 was restarted in",
    ):
        assert words in text
    phases = [line.split()[1] for line in out.splitlines() if re.match(r" *\d+:\d\d  [a-z]", line)]
    assert phases == ["intent", "stopping", "stopped", "starting", "verifying", "done"]
    stored = site.record()
    assert (stored.phase, stored.cause, stored.reason, stored.lease) == (Phase.DONE, "operator", "It hangs.", Lease())
    assert stored.evidence[0].startswith("cloud: The API says READY and TIMEOUT")
    begun, done = site.audit()
    assert (begun["result"], begun["decision"], done["result"]) == ("begun", "restart_node", "done")
    assert begun["budget"] == {"node": 0, "node_max": 3, "fleet": 0, "fleet_max": 10}
    assert site.ledger.fleet().fleet.claims == (
        Claim(target(), stored.requested),
    )  # daemons count it from the first on


def test_a_node_that_is_restarted_from_elsewhere_is_not_probed_which_is_said(site: Site) -> None:
    site.add()
    code, (document,) = site.json("train-1", "--yes", "--probe")
    assert (code, document["outcome"], document["probe"]) == (0, "done", None)
    site.add("train-2")
    code, _, err = site.run("train-2", "--yes", "--probe")
    assert code == 0
    assert "train-2 was not probed, since this machine is none of it" in err
    assert f"ssh train-2 --zone={ZONE} --project={PROJECT} --worker=all --command='sudo tpuwatch probe'" in err


def test_the_own_node_is_probed_after_it(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.add()
    site.state.mkdir(exist_ok=True)
    own = {"node": "train-1", "zone": ZONE, "project": PROJECT}
    monkeypatch.setattr("tpuwatch.restart.operator.targets.ask_metadata", lambda _: own)
    lacking = site.state / "python3"
    lacking.write_text("#!/bin/sh\nexit 3\n")
    lacking.chmod(0o755)
    monkeypatch.setenv("PATH", str(site.state))
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.setenv("TPU_SKIP_MDS_QUERY", "1")
    machine = Machine(site.state / "machine")  # on this one a process may hold a TPU
    monkeypatch.setattr("tpuwatch.program.run_probe", partial(run_probe, root=machine.root))
    code, (document,) = site.json("train-1", "--yes", "--probe", "--force-action", "restart_node")
    assert (document["outcome"], document["probe"]["verdict"]) == ("done", "stack_fault")
    assert "exit status 3" in document["probe"]["summary"]
    assert code == 1
    assert read_probe(site.state) is not None


def test_json_is_a_line_for_each_node_and_all_else_is_on_standard_error(site: Site) -> None:
    site.add()
    site.add("train-2")
    code, out, err = site.run("train-1", "train-2", "--yes", "--json")
    documents = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [list(document)[:5] for document in documents] == [["node", "outcome", "phase", "operations", "seconds"]] * 2
    assert [document["node"] for document in documents] == ["train-1", "train-2"]
    assert {(document["outcome"], document["phase"]) for document in documents} == {("done", "done")}
    assert [len(document["operations"]) for document in documents] == [2, 2]
    assert all(document["seconds"] > 200 for document in documents)
    assert "What it costs" in err
    history = [(one.node.rpartition("/")[2], one.what) for one in site.cloud.world.history if one.what == "stop"]
    assert history == [("train-1", "stop"), ("train-2", "stop")]


def test_a_dry_run_changes_nothing(site: Site) -> None:
    site.add()
    code, out, _ = site.run("train-1", "--dry-run")
    assert (code, site.calls(), site.state.exists()) == (0, [], False)
    assert "The node is stopped and started again" in flat(out)
    assert "Nothing was done: this was a dry run." in out
    assert site.json("train-1", "--dry-run")[1][0]["outcome"] == "dry_run"


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ([], "the following arguments are required: NODE"),
        (["train-*"], "'train-*' is not the name of a node: write its name"),
        (["projects/p/locations/z/node/n"], "is not the name of a node"),
        (["Train"], "is not the name of a node"),
        (["train-1", "--project", "No Such"], "'No Such' is not a project's ID"),
        (["train-1", "--project", "123456"], "123456 is a project's number: give its ID"),
        (["projects/123456/locations/us-east5-a/nodes/train-1"], "is a project's number"),
        (["train-1", "--force-action", "end_holder"], "there is no 'end_holder'"),
        (["train-1"], "there is no terminal to ask on: give --yes"),
    ],
)
def test_wrong_use(site: Site, words: list[str], answer: str) -> None:
    site.add()
    code, _, err = site.run(*words)
    assert (code, site.calls()) == (2, [])
    assert answer in flat(err)


def test_a_node_whose_project_is_unknown_is_wrong_use(site: Site) -> None:
    site.config.write_text(f'[state]\ndir = "{site.state}"\n')
    code, _, err = site.run("train-1", "--zone", ZONE)
    assert code == 2
    assert "the project of train-1 is unknown: give --project, or `project` in [cloud]" in flat(err)


def test_a_full_name_or_options_need_no_configured_project_and_zone(site: Site) -> None:
    site.add()
    text = site.config.read_text().replace(f'project = "{PROJECT}"\nzone = "{ZONE}"\n', "")
    site.config.write_text(text)
    for words in (
        ["train-1", "--zone", ZONE, "--project", PROJECT],
        [target().path],
        [f"{ZONE}/train-1", "--project=lab"],
    ):
        assert site.run(*words, "--dry-run")[0] == 0


def test_with_the_cloud_disabled_it_is_wrong_use(site: Site) -> None:
    site.config.write_text(f"{site.config.read_text()}".replace("[cloud]", "[cloud]\nenabled = false"))
    assert site.run("train-1")[0] == 2


def test_without_credentials_nothing_can_be_found_out(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.config.write_text(f'[state]\ndir = "{site.state}"\n')
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nonexistent/key.json")
    code, out, _ = site.run(target().path, "--yes")
    assert (code, site.state.exists()) == (3, False)
    assert "The node's state could not be found out." in flat(out)
    assert "/nonexistent/key.json" in out


def test_an_api_that_fails_is_no_reason_to_restart(site: Site) -> None:
    site.add()
    site.cloud.world.faults.set(InjectedFault("GetNode", code="UNAVAILABLE"))
    code, (document,) = site.json("train-1", "--yes")
    assert (code, document["outcome"], document["phase"], site.calls()) == (3, "unknown", None, [])


@pytest.mark.parametrize("fault", ["unwritable", "damaged"])
def test_without_a_ledger_nothing_is_restarted(site: Site, fault: str) -> None:
    site.add()
    if fault == "damaged":
        site.state.mkdir()
        (site.state / "ledger.db").write_bytes(b"no database" * 1000)
    else:
        site.state.write_text("a file in its place")
    code, out, _ = site.run("train-1", "--yes")
    assert (code, site.calls()) == (3, [])
    assert "edger" in out


def test_an_audit_that_cannot_be_written_holds_up_nothing(site: Site) -> None:
    site.add()
    (site.state / "audit.jsonl").mkdir(parents=True)
    assert site.run("train-1", "--yes")[0] == 0


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"spot": True}, "--accelerator-type=v5litepod-4 --version="),
        ({"spot": True}, " --spot"),
        ({"state": "PREEMPTED", "health": ""}, "tpu-vm delete train-1"),
        ({"state": "TERMINATED", "queued_resource": "queue-1"}, "queued-resources delete queue-1 --force"),
        ({"hosts": 4}, "has no queued resource"),
    ],
)
def test_a_node_that_cannot_be_restarted_gets_the_commands_that_help(
    site: Site, fields: dict[str, Any], words: str
) -> None:
    site.add(**fields)
    code, out, _ = site.run("train-1", "--yes")
    assert (code, site.calls(), site.ledger.records()) == (1, [], [])
    assert words in flat(out)
    assert site.audit()[-1]["result"] == "needs_operator"


def test_a_misspelt_node_gets_the_nodes_that_exist_and_no_command(site: Site) -> None:
    for name in ("other", "train-3", "train-33"):
        site.add(name, bad=False)
    code, (document,) = site.json("train-9", "--yes")
    assert (code, document["outcome"], site.calls(), site.ledger.records()) == (2, "misused", [], [])
    note = document["note"]
    assert "no node train-9 in zone us-east5-a of project lab" in note
    assert re.findall(r"train-3+|other", note) == ["train-3", "train-33", "other"]
    assert not re.search("create|gcloud|tpuwatch restart", note)
    code, out, err = site.run("train-9", "--dry-run")
    assert code == 2
    assert not re.search("create|gcloud|tpuwatch restart", out + err)


def test_the_nodes_that_exist_are_as_many_as_can_be_read(site: Site) -> None:
    for number in range(50):
        site.add(f"node-{number}", bad=False)
    assert "and 30 more" in site.json("train-9", "--yes")[1][0]["note"]
    site.cloud.world.faults.set(InjectedFault("ListNodes", code="PERMISSION_DENIED"))
    code, (document,) = site.json("train-9", "--yes")
    assert (code, document["outcome"]) == (2, "misused")
    assert "could not be listed" in document["note"]


def test_a_node_that_was_known_and_is_gone_gets_the_commands_that_create_it(site: Site) -> None:
    site.add("train-2")
    site.put("train-1", phase=Phase.DONE)
    code, out, _ = site.run("train-1", "--yes")
    assert code == 1
    assert "tpu-vm create train-1" in flat(out)


def test_a_healthy_node_is_restarted_only_if_confirmed(site: Site) -> None:
    node = site.add(bad=False)
    code, _, err = site.run("train-1")
    assert code == 2
    assert "give --yes" in flat(err)
    assert node.boots == 1
    assert site.run("train-1", "--yes")[0] == 0
    assert node.boots == 2


def test_a_stopped_node_is_started(site: Site) -> None:
    node = site.add(bad=False, state="STOPPED")
    code, out, _ = site.run("train-1", "--yes")
    assert (code, site.calls(), node.state) == (0, ["StartNode"], "READY")
    assert "The node is STOPPED: it is started" in flat(out)
    assert "jobs" not in out


def test_several_hosts_are_reset(site: Site) -> None:
    site.add(hosts=4, queued_resource="queue-1")
    assert site.run("train-1", "--yes", "--force-action", "restart_node")[0] == 2
    code, out, _ = site.run("train-1", "--yes")
    assert (code, site.calls()) == (0, ["ResetQueuedResource"])
    assert "queue-1 is reset, which restarts all 4 hosts" in flat(out)


def test_other_nodes_of_the_queued_resource_are_named_and_have_to_be_forced(site: Site) -> None:
    queued = {"hosts": 4, "queued_resource": "queue-1"}
    site.add(**queued)
    well, ill, _ = (
        site.add("train-2", bad=False, **queued),
        site.add("train-3", **queued),
        site.add("train-4", bad=False, hosts=4, queued_resource="queue-2"),
    )
    for words in (("--dry-run",), ("--yes",)):
        code, out, _ = site.run("train-1", *words)
        assert (code, site.calls()) == (2, [])
        assert {"train-2", "train-3", "HEALTHY"} <= set(re.findall(r"[\w-]+", out))
        assert "train-4" not in out
        assert "train-2 (READY, HEALTHY)" in flat(out)
    assert site.ledger.read(target()) is None
    assert site.run("train-1", "--yes", "--force-action", "reset_queued_resource")[0] == 0
    assert site.calls() == ["ResetQueuedResource"]
    well.health = ill.health = "TIMEOUT"
    assert site.run("train-1", "--dry-run")[0] == 0


def test_a_reset_that_a_daemon_decided_is_not_taken_over_without_that(site: Site) -> None:
    queued = {"hosts": 4, "queued_resource": "queue-1"}
    site.add(**queued)
    site.add("train-2", bad=False, **queued)
    site.put(action=Action.RESET_QUEUED_RESOURCE, signals=("cloud",))
    assert site.run("train-1", "--yes")[0] == 2
    assert site.calls() == []
    assert site.run("train-1", "--yes", "--force-action", "reset_queued_resource")[0] == 0


def test_the_own_node_has_to_be_forced(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.add()
    identity = {"node": "train-1", "zone": ZONE, "project": PROJECT}
    monkeypatch.setattr("tpuwatch.restart.find_own_node", lambda *_: OwnNode(identity))
    code, out, _ = site.run("train-1", "--yes")
    assert (code, site.calls()) == (2, [])
    assert "This machine belongs to train-1" in flat(out)
    assert site.run("train-1", "--yes", "--force-action", "restart_node")[0] == 0
    site.add("train-2")
    monkeypatch.setattr("tpuwatch.restart.find_own_node", lambda *_: OwnNode({}, "The metadata server is silent."))
    code, out, _ = site.run("train-2", "--yes")
    assert code == 2
    assert "This machine may belong to train-2 and go down with it: that could not be found out." in flat(out)


def test_the_metadata_server_reports_the_own_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with simulated(tmp_path / "sim") as simulated_site:
        config = tmp_path / "sim.toml"
        config.write_text(f'{simulated_site.toml()}[state]\ndir = "{tmp_path}/state"\n')
        for name, value in simulated_site.simulator.environment().items():
            monkeypatch.setenv(name, value)
        site = Site.__new__(Site)
        site._capsys = capsys
        site.state = tmp_path / "state"
        code, out, _ = site.run("train-1", "--yes", "--reason", "x", "--config", str(config))
        assert code == 2
        assert f"train-1 (zone {SIM_ZONE}," in flat(out)
        assert "This machine belongs to train-1" in flat(out)


def test_nodes_after_one_that_was_stopped_and_stays_bad_are_skipped(site: Site) -> None:
    for name in ("train-1", "train-2", "train-3"):
        site.add(name, spot=name == "train-1")

    def keep_bad(_: RestartDisplay) -> None:
        node = site.cloud.world.nodes[target("train-2").path]
        node.health = "TIMEOUT"

    site.on_wait = keep_bad
    code, documents = site.json("train-1", "train-2", "train-3", "--yes")
    assert code == 1
    assert [one["outcome"] for one in documents] == ["needs_operator", "failed", "skipped"]
    assert site.ledger.read(target("train-3")) is None


def test_the_verdict_is_from_the_local_daemon_if_it_watches_the_node(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = site.add()
    now = site.clock.time()
    judged = samples.judgement(Verdict.NODE_STUCK, node="train-1", at=now, since=now - 600)
    status = samples.node(judgement=judged)
    view = samples.SampleView(
        shown=samples.watching(), watched=[replace(status, project=PROJECT, zone=ZONE), samples.node("other")]
    )
    with answering(view, tmp_path, monkeypatch) as address:
        monkeypatch.setenv("TPUWATCH_CONFIG", str(site.config))
        site.config.write_text(site.config.read_text().replace("127.0.0.1:0", address))
        code, out, _ = site.run("train-1", "--dry-run")
    assert (code, node.boots) == (0, 1)
    assert f"The verdict is from the daemon at {address}." in flat(out)
    assert "train-1 (zone us-east5-a, project lab): node_stuck since" in flat(out)
    assert "process 4242 of alice: python3 train.py" in flat(out)


def test_a_workstation_without_a_configuration_has_its_own_ledger(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tpuwatch.config import Config
    from tpuwatch.config.schema import StateConfig
    from tpuwatch.core.clock import SystemClock

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    nowhere = Config(state=StateConfig(dir=tmp_path / "no" / "such"))
    assert open_access(nowhere, SystemClock()).location == str(tmp_path / "home" / "tpuwatch")
    there = Config(state=StateConfig(dir=tmp_path))
    assert open_access(there, SystemClock()).location == str(tmp_path)
    assert site.state.parent == tmp_path


@pytest.mark.parametrize("command", ["restart", "restarts"])
def test_help_imports_nothing_slow(command: str) -> None:
    code = (
        "import sys\n"
        "from tpuwatch.cli.main import main\n"
        f"try: main(['{command}', '--help'])\n"
        "except SystemExit: pass\n"
        "slow = {'grpc', 'pydantic', 'sqlite3', 'google', 'logging', 'tpuwatch.model.restart'} & set(sys.modules)\n"
        "sys.exit(str(slow) if slow else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_nothing_within_has_confirmed_is_not_called_done(site: Site) -> None:
    site.present = PresentEvidence()
    site.add("train-1")
    site.add("train-2")
    code, documents = site.json("train-1", "train-2", "--yes")
    assert code == 3
    assert [one["outcome"] for one in documents] == ["not_verified", "not_verified"]  # the others are not skipped
    assert "that it works is not verified" in documents[0]["note"]
    code, out, _ = site.restarts("history")
    assert "not verified after" in out


def test_a_node_that_has_become_well_is_shown_before_it_is_stopped(site: Site) -> None:
    site.present = PresentEvidence(Standing.RECOVERED, "it is idle.", Within.ANSWERS, "its own tpuwatch answers")
    site.add()
    code, out, _ = site.run("train-1", "--yes")
    assert code == 0
    shown = flat(out)
    shown_at = shown.index("Node train-1 has become well since this was requested: it is idle.")
    assert shown_at < shown.index("Node train-1 is stopped now")
