"""The daemon with all its signals, as its operators meet it: a real process, over a simulated cloud."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.daemon_in_cloud import DaemonInCloud
from tests.e2e.daemon_process import wait_for
from tests.standins.runtime_server import listening
from tests.standins.simulated import ZONE, Site, simulated
from tests.unit.daemon.watching import BLACK_HOLE, under_way

VERDICT, STATE = "tpuwatch_verdict", "tpuwatch_node_state"
LISTED = 'tpuwatch_api_requests_total{code="OK",method="ListNodes"}'


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with simulated(tmp_path / "sim") as site:
        yield site


@pytest.fixture
def daemon(site: Site, tmp_path: Path) -> Iterator[DaemonInCloud]:
    with DaemonInCloud(tmp_path / "daemon", site) as daemon:
        daemon.machine.process(4242, files=("/dev/vfio/0",))  # it has trained since long ago
        yield daemon


@pytest.fixture
def patient(site: Site, tmp_path: Path) -> Iterator[DaemonInCloud]:
    """One that waits for all answers for as long as it takes."""
    with DaemonInCloud(tmp_path / "daemon", site, patience_seconds=100.0) as daemon:
        daemon.machine.process(4242, files=("/dev/vfio/0",))
        daemon.watch(cloud={"timeout_seconds": 100.0})
        yield daemon


def test_another_configuration_of_the_node_side_takes_effect_without_a_restart(daemon: DaemonInCloud) -> None:
    def shows(*nodes: str) -> None:
        """These nodes are shown, and no others; a daemon that has just begun may not know its own yet."""
        wait_for(lambda: daemon.nodes().keys() == set(nodes), f"{nodes} to be shown")
        states = {f'{{node="{node}",state="READY",zone="{ZONE}"}}' for node in nodes if node != "this-vm"}
        wait_for(lambda: daemon.series(STATE).keys() == states, f"states of {nodes}")

    daemon.start()
    daemon.judged("train-2", "healthy")
    shows("train-1", "train-2")
    wait_for(lambda: daemon.series("tpuwatch_hbm_used_bytes"), "word of the runtime")

    daemon.reload(cloud={"nodes": ["train-3"]}, runtime={"enabled": False})
    daemon.judged("train-3", "healthy")
    shows("train-1", "train-3")
    assert daemon.series("tpuwatch_hbm_used_bytes") == {}
    assert "runtime" not in {loop["name"] for loop in daemon.api("status")["loops"]}

    daemon.refused(cloud={"zone": "No Such Zone", "nodes": ["train-2"]})
    wait_for(lambda: "cloud.zone" in " ".join(daemon.api("status")["notices"]), "word of it")
    asked = daemon.counted(LISTED)
    wait_for(lambda: daemon.counted(LISTED) > asked, "a poll by the configuration that was")
    assert daemon.nodes().keys() == {"train-1", "train-3"}

    daemon.reload(cloud={"enabled": False, "nodes": []})
    daemon.judged("this-vm", "healthy")  # nobody reports its name, and its runtime speaks for it
    shows("this-vm")
    asked = daemon.counted(LISTED)

    daemon.reload()
    daemon.judged("train-1", "healthy")
    assert daemon.counted(LISTED) > asked
    assert daemon.stop() == 0
    assert "Traceback" not in daemon.said()


def test_since_when_a_verdict_holds_outlives_the_daemon(patient: DaemonInCloud) -> None:
    daemon = patient  # one that gave up somebody's first word would judge otherwise for a moment
    daemon.start()
    since = {name: daemon.judged(name, "healthy")["since_epoch"] for name in ("train-1", "train-2")}
    for end in (daemon.stop, daemon.kill):
        end()
        daemon.skip(3600.0)
        daemon.start()
        assert {name: daemon.judged(name, "healthy")["since_epoch"] for name in since} == since
    status, said = daemon.command("status")
    assert (status, "train-1: healthy since" in said) == (0, True)


def test_a_notice_is_an_event_a_finding_and_a_metric(daemon: DaemonInCloud) -> None:
    daemon.start()
    daemon.judged("train-1", "healthy")
    assert daemon.metric("tpuwatch_maintenance_notice") == daemon.metric("tpuwatch_preemption_notice") == 0
    daemon.site.do("maintain", in_seconds=1800.0)
    (event,) = wait_for(lambda: daemon.api("events")["events"], "the event")
    assert (event["cause"], event["file"]) == ("maintenance", "metadata server")
    assert "SCHEDULED PENDING" in event["text"]
    wait_for(lambda: daemon.metric('tpuwatch_events_total{cause="maintenance"}') == 1, "its count")
    wait_for(lambda: daemon.metric("tpuwatch_maintenance_notice") == 1, "the metric")
    begins = daemon.metric("tpuwatch_maintenance_start_timestamp_seconds")
    assert begins == pytest.approx(time.time() + 1800, abs=60)
    (finding,) = wait_for(lambda: daemon.api("findings")["findings"], "the finding")
    assert (finding["cause"], finding["count"]) == ("maintenance", 1)
    assert finding["remedy"]

    daemon.site.do("preempt")
    wait_for(lambda: daemon.metric('tpuwatch_events_total{cause="preempted"}') == 1, "the other event")
    assert daemon.metric("tpuwatch_preemption_notice") == 1
    daemon.judged("train-1", "preempted")
    wait_for(lambda: f'{{node="train-1",verdict="preempted",zone="{ZONE}"}}' in daemon.series(VERDICT), "its metric")
    status, said = daemon.command("status")
    assert status == 1
    assert "train-1: preempted since" in said
    assert daemon.command("events", "--cause", "preempted")[1].count("preempted") >= 1

    assert daemon.stop() == 0
    daemon.start()  # both notices are read again, and are no news
    daemon.judged("train-1", "preempted")
    wait_for(lambda: daemon.metric("tpuwatch_preemption_notice") == 1, "the notices")
    assert sorted(event["cause"] for event in daemon.api("events")["events"]) == ["maintenance", "preempted"]


def test_a_node_that_is_ready_by_the_clouds_word_and_dead(daemon: DaemonInCloud) -> None:
    daemon.start()
    daemon.judged("train-1", "healthy")
    daemon.site.do("lie")
    assert daemon.suspects("train-1")["verdict"] == "unknown"  # not yet: it may be busy
    daemon.skip(400.0)
    node = daemon.judged("train-1", "runtime_stuck")
    assert node["contradictions"][0].startswith("The API says READY and HEALTHY, the runtime has not answered for ")
    assert (node["cloud"]["state"], node["cloud"]["health"]) == ("READY", "HEALTHY")
    wait_for(
        lambda: f'{{node="train-1",verdict="runtime_stuck",zone="{ZONE}"}}' in daemon.series(VERDICT), "its metric"
    )
    assert daemon.series(STATE)[f'{{node="train-1",state="READY",zone="{ZONE}"}}'] == 1
    status, said = daemon.command("status", "--verbose")
    assert status == 1
    assert "train-1: runtime_stuck since" in said
    assert "But: The API says READY and HEALTHY, the runtime has not answered for " in said
    assert f"warning {ZONE}/train-1 is runtime_stuck" in daemon.said()


def test_it_ends_in_time_whatever_hangs(daemon: DaemonInCloud, site: Site) -> None:
    for method in ("ListNodes", "metadata"):
        site.do("fault", method=method, **BLACK_HOLE)
    with listening() as port:
        daemon.watch(cloud={"timeout_seconds": 120.0, "nodes": [f"{ZONE}/*"]}, runtime={"ports": [port]})
        daemon.start()
        wait_for(lambda: under_way(site, "ListNodes"), "a call that hangs")
        begun = time.monotonic()
        assert daemon.stop() == 0
    assert time.monotonic() - begun < 60  # the call had two minutes
    assert "Traceback" not in daemon.said()


def test_a_loop_that_is_known_by_its_output_alone_stands_still_until_its_program_ends(daemon: DaemonInCloud) -> None:
    """Nothing names the process: the one that held the TPU at the last step is there, and then it is not."""
    stalled = 'tpuwatch_workload_loop_faults{cause="steps_stalled"}'
    program = subprocess.Popen(("/bin/sleep", "600"))
    try:
        daemon.machine.process(program.pid, files=("/dev/vfio/0",))
        daemon.machine.ended(4242)
        daemon.start()
        daemon.judged("train-1", "healthy")
        daemon.jobs.mkdir(exist_ok=True)
        for step in range(1, 4):
            with (daemon.jobs / "train.log").open("a") as output:
                output.write(f"step {step}/1000 loss 2.5 step_time 1.0 s\n")
            wait_for(lambda step=step: [one["step"] for one in daemon.api("status")["training"]] == [step], "the step")
        assert daemon.metric(stalled) == 0
        daemon.skip(3000.0)
        wait_for(lambda: daemon.metric(stalled) == 1, "the loop to stand still")
        wait_for(lambda: [one["cause"] for one in daemon.api("findings")["findings"]] == ["steps_stalled"], "a finding")
    finally:
        program.kill()
        program.wait()
    wait_for(lambda: daemon.metric(stalled) == 0, "the end of its program to be seen")
