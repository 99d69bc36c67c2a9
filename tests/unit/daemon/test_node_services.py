"""The node side with its real signals, over a simulated cloud in this process."""

from __future__ import annotations

import functools
import itertools
import logging
import re
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.daemon_process import wait_for
from tests.standins import model_server
from tests.standins.kubernetes_server import kubernetes_node, kubernetes_server
from tests.standins.peer_server import http, peer_server, status
from tests.standins.runtime_server import listening
from tests.standins.simulated import OTHER_ZONE, ZONE
from tests.unit.daemon.watching import BLACK_HOLE, Watching, problem, verdicts, wake, watched
from tpuwatch import google
from tpuwatch.model.answers import Problem, Signal
from tpuwatch.model.causes import Cause
from tpuwatch.model.judged_node import JudgedNode
from tpuwatch.model.signals import Known
from tpuwatch.model.verdict import Action, Verdict
from tpuwatch.signals import sources
from tpuwatch.signals.kubernetes import TERMINATION
from tpuwatch.signals.sources import FIRST_SECONDS

ALWAYS = {"judge", "host", "identity"}


@pytest.fixture
def watching(tmp_path: Path) -> Iterator[Watching]:
    with watched(tmp_path) as watching:
        yield watching


def shown(watching: Watching) -> str:
    return watching.metrics.exposition()[0].decode()


# -- what is on


@pytest.mark.parametrize(
    ("changes", "more", "off"),
    [
        ({}, {"runtime", "cloud", "notices"}, {"monitoring", "peer", "server"}),
        ({"peers": {"enabled": True}}, {"runtime", "cloud", "notices", "peer"}, {"monitoring", "server"}),
        ({"cloud": {"enabled": False}}, {"runtime"}, {"cloud", "metadata", "monitoring", "peer", "server"}),
        ({"runtime": {"enabled": False}}, {"cloud", "notices"}, {"runtime", "monitoring", "peer", "server"}),
        (
            {"monitoring": {"read": True, "export": True}},
            {"runtime", "cloud", "notices", "monitoring", "export"},
            {"peer", "server"},
        ),
        (
            {"cloud": {"enabled": False}, "runtime": {"enabled": False}, "monitoring": {"export": True}},
            {"export"},
            {"cloud", "runtime", "metadata", "monitoring", "peer", "server"},
        ),
    ],
)
def test_what_the_configuration_switches_on_is_asked_and_nothing_else(
    watching: Watching, changes: dict[str, Any], more: set[str], off: set[str]
) -> None:
    watch = watching.start(**changes)
    assert watch.loops.limits().keys() == {loop.name for loop in watch.loops.status()} == ALWAYS | more
    off |= {"kubernetes"}  # this is no pod
    on = {signal.value for signal in Signal} - off - {"logs"}  # the log service reports those
    wait_for(lambda: all(watching.up().get(name) for name in on), f"{on} to answer")
    assert watching.up().keys() == on | {"logs"}
    assert {one.name for one in watch.signals.status() if one.problem is Problem.OFF} == off
    wait_for(lambda: set(watching.turns) == ALWAYS | more, "a turn of every loop")
    assert all(loop.fresh for loop in watch.loops.status())
    called = {call.method for call in watching.site.world.calls}
    assert (bool({"ListNodes", "GetNode"} & called)) == ("cloud" in more)
    assert ("GetRuntimeMetric" in called) == ("runtime" in more)
    assert ("ListTimeSeries" in called) == ("monitoring" in more)
    assert watch.problems() == []


@pytest.mark.parametrize("mode", ["act", "observe"])
def test_nodes_beside_the_own_slice_are_listed_only_where_its_queued_resource_may_be_reset(
    watching: Watching, mode: str
) -> None:
    for node in watching.site.world.nodes.values():
        node.hosts, node.queued_resource = 2, "queue-1"
    watch = watching.start(cloud={"nodes": []}, restart={"mode": mode, "reset_queued_resource": True})

    def beside() -> set[str]:
        return {node.name for node in watch.signals.snapshot.beside}

    def polls() -> int:
        methods = ("GetNode", "ListNodes")
        return sum(call.code == "OK" and call.method in methods for call in list(watching.site.world.calls))

    wait_for(lambda: polls() > 2, "some polls")
    if mode == "act":
        wait_for(lambda: beside() == {"train-2", "train-3"}, "the nodes beside it")
    listed = {call.method for call in watching.site.world.calls} & {"ListNodes"}
    assert bool(listed) == bool(beside()) == (mode == "act")


def test_a_server_of_models_is_asked_where_the_configuration_has_its_address(watching: Watching) -> None:
    with peer_server() as server:
        page = model_server.vllm(3, 1).encode()
        server.reply = http(page, **{"Content-Type": "text/plain; version=0.0.4"})
        watch = watching.start(workload={"metrics_url": f"{server.url}/metrics"})
        wait_for(lambda: watching.up().get("server") == 1, "an answer of the server")
        seen = watch.signals.snapshot.server.value
        assert seen is not None
        assert (seen.software, seen.running, seen.waiting) == ("vLLM", 3, 1)
        assert "server" in {one.name for one in watch.signals.status()}
        wait_for(lambda: any(one.own for one in watch.judge.nodes), "a verdict")
    assert 'tpuwatch_workload_kind{kind="serving",node="train-1",zone="us-central2-b"} 1.0' in shown(watching)


def test_who_this_machine_is_once_known_wakes_those_who_waited_for_it(watching: Watching) -> None:
    watching.site.do("fault", method="metadata", code="UNAVAILABLE")
    patient = {"poll_seconds": 3600.0, "timeout_seconds": 60.0}  # one that fails would not ask again in time
    rarely = {"cloud": {**patient, "nodes": []}, "runtime": {"ports": [], "poll_seconds": 600.0}}
    watch = watching.start(**rarely)
    wait_for(lambda: set(watching.turns) >= {"cloud", "runtime"} and watch.judge.nodes, "the first verdict")
    assert problem(watch, Signal.CLOUD) is Problem.UNCONFIGURED
    assert [one.node for one in watch.judge.nodes] == ["this-vm"]
    watching.site.do("clear")
    wake(watch, "identity")
    wait_for(lambda: verdicts(watch) == {"train-1": Verdict.HEALTHY}, "this machine's node")
    answer = watch.signals.snapshot.runtime
    assert answer.value is not None
    assert [port.port for port in answer.value.ports] == list(watching.site.simulator.runtime.ports)


def test_the_first_words_wake_only_those_who_waited_for_them(
    watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal that is woken asks at once, and no server is asked twice because others have answered meanwhile."""
    watch = watching.new(monitoring={"read": True}, peers={"enabled": True})
    woken: list[str] = []
    for name, loop in watch.loops._loops.items():

        def wake(name: str = name, really: Callable[[], None] = loop.wake) -> None:
            woken.append(name)
            really()

        monkeypatch.setattr(loop, "wake", wake)
    watch.start()
    wait_for(lambda: set(watching.turns) == set(watch.loops.limits()), "a turn of every loop")
    assert {name: woken.count(name) for name in watch.loops.limits() if name not in ("judge", "peer")} == {
        "host": 0,
        "identity": 0,
        "notices": 0,
        "cloud": 1,
        "runtime": 1,
        "monitoring": 1,
    }
    watch.stop()


def test_a_runtime_that_owes_an_answer_is_reported_until_it_is_not_watched(watching: Watching) -> None:
    with listening() as port:
        series = f'tpuwatch_runtime_response_pending_seconds{{port="{port}"}} '

        def owed() -> float:
            text = shown(watching)
            return float(text.partition(series)[2].split()[0]) if series in text else -1.0

        watch = watching.start(runtime={"ports": [port]})
        assert wait_for(lambda: owed() > 0, "an answer that is owed")
        watch.stop()
        assert owed() == -1


@pytest.mark.slow
def test_another_nodes_tpuwatch_is_asked_and_its_silence_is_reported(watching: Watching) -> None:
    with peer_server() as server:
        server.reply = status("train-2", "idle")
        peers = {"enabled": True, "addresses": {"train-2": server.url}, "poll_seconds": 1.0, "timeout_seconds": 0.5}
        watch = watching.start(peers={**peers, "silent_seconds": 10.0})
        wait_for(lambda: verdicts(watch).get("train-2") is Verdict.IDLE, "its word")
        wait_for(
            lambda: f'tpuwatch_peer_up{{node="train-2",zone="{ZONE}"}} 1.0' in shown(watching), "it to count as up"
        )
        server.reply = None

        def silent_node() -> JudgedNode | None:
            watching.clock.ahead += 0.2
            for name in ("peer", "cloud"):
                wake(watch, name)
            (other,) = [one for one in watch.judge.nodes if one.node == "train-2"]
            return other if other.judgement.action is Action.MANUAL else None

        other = wait_for(silent_node, "its silence to count")
        assert other is not None
        wait_for(lambda: 'tpuwatch_peers{state="silent"} 1.0' in shown(watching), "it to be counted")
        assert other.peer is not None
        assert other.peer.silent_since is not None
        assert other.judgement.verdict is Verdict.UNKNOWN
        assert [reason.signal for reason in other.judgement.reasons] == [Signal.PEER]
        watch.stop()


def test_the_first_verdict_waits_for_the_first_words_but_not_for_ever(
    watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "FIRST_SECONDS", FIRST_SECONDS + 600)  # more than the test takes by itself
    monkeypatch.setattr(google, "MetadataClient", functools.partial(google.MetadataClient, timeout_seconds=600.0))
    watching.site.do("fault", method="metadata", **BLACK_HOLE)
    watch = watching.start()
    wait_for(lambda: {"judge", "host"} <= set(watching.turns), "the first turns")
    assert watch.judge.nodes == ()
    assert watch.signals.snapshot.identity.project == Known("sim-project", "config")  # so much is known without it
    assert not {"ListNodes", "GetNode"} & {call.method for call in watching.site.world.calls}
    assert watching.turns.count("cloud") == watching.turns.count("runtime") == 0  # to wait is no success
    watching.clock.ahead = FIRST_SECONDS + 600
    wake(watch, "cloud")
    wake(watch, "judge")
    wait_for(lambda: watch.judge.nodes, "a verdict")


def test_a_loop_that_has_not_come_round_yet_is_late_only_after_its_time(watching: Watching) -> None:
    watch = watching.new()
    assert all(loop.fresh and loop.last_success is None for loop in watch.loops.status())
    watching.clock.ahead = min(watch.loops.limits().values())
    assert not all(loop.fresh for loop in watch.loops.status())


# -- notices


@pytest.mark.slow
def test_a_notice_is_one_event_also_across_a_restart(watching: Watching) -> None:
    watch = watching.start()
    wait_for(lambda: watch.signals.snapshot.notices.value, "the metadata server")
    assert watching.events == []
    watching.site.do("maintain", in_seconds=1800.0)
    wait_for(lambda: watching.events, "the event")
    assert [event.cause for event in watching.events] == [Cause.MAINTENANCE]
    assert "upcoming_maintenance: SCHEDULED PENDING" in watching.events[0].text
    watching.site.do("preempt")
    wait_for(lambda: len(watching.events) > 1, "the other event")
    watch.stop()
    first, watching.events = watching.events, []
    assert [event.cause for event in first] == [Cause.MAINTENANCE, Cause.PREEMPTED]
    assert watching.store.commit(first, []) == first

    again = watching.start()
    wait_for(lambda: len(watching.events) == 2, "both notices to be read again")
    assert verdicts(again).keys() <= {"train-1", "train-2"}
    assert watching.store.commit(watching.events, []) == []  # the store knows them


def test_a_metadata_server_that_fails_between_two_notices_makes_no_second_event(watching: Watching) -> None:
    watch = watching.start()
    watching.site.do("maintain", in_seconds=1800.0)
    wait_for(lambda: watching.events, "the event")
    watching.site.do("fault", method="metadata", code="UNAVAILABLE")
    watching.site.do("preempt")  # the request that waits is answered, the next one is refused
    wait_for(lambda: problem(watch, Signal.METADATA) is Problem.SERVER, "the failure")
    watching.site.do("clear")
    wait_for(lambda: problem(watch, Signal.METADATA) is None, "the all-clear")
    wait_for(lambda: len(watching.events) > 1, "the preemption")
    assert [event.cause for event in watching.events] == [Cause.MAINTENANCE, Cause.PREEMPTED]


def test_kubernetes_is_asked_in_a_pod_and_its_notices_are_events_and_metrics(
    watching: Watching, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kubernetes_server(tmp_path / "pod") as server:
        server.nodes["gke-tpu-1"] = kubernetes_node(taints=[{"key": TERMINATION, "effect": "NoSchedule"}])
        for name, value in server.environ.items():
            monkeypatch.setenv(name, value)
        watch = watching.start(  # another machine than this one has no variables of a pod
            host={"root": "/"}, kubernetes={"service_account": str(server.account), "poll_seconds": 1.0}
        )
        wait_for(lambda: watching.events, "the event")
        assert [(event.cause, event.file) for event in watching.events] == [(Cause.MAINTENANCE, "Kubernetes")]
        assert watching.up()["kubernetes"] == 1
        assert "tpuwatch_maintenance_notice 1.0" in shown(watching)
        server.status = 403
        wait_for(lambda: problem(watch, Signal.KUBERNETES) is Problem.DENIED, "the refusal")
        wait_for(lambda: watching.up()["kubernetes"] == 0, "the failure")
        assert re.search(r'^tpuwatch_signal_failures_total{signal="kubernetes"} [1-9]', shown(watching), re.MULTILINE)


# -- what goes wrong


def test_a_signal_that_raises_is_logged_and_the_others_go_on(
    watching: Watching, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def ask(_: object) -> None:
        raise ZeroDivisionError("unexpected")

    monkeypatch.setattr("tpuwatch.signals.runtime.RuntimeSignal.ask", ask)
    watch = watching.start()
    watching.clock.ahead = FIRST_SECONDS  # its first answer is no longer waited for
    wake(watch, "judge")
    wait_for(lambda: verdicts(watch).get("train-2") is Verdict.HEALTHY, "the verdicts")
    wait_for(lambda: "A turn of the loop runtime failed." in caplog.text, "word of it")
    assert "unexpected" in caplog.text
    wait_for(lambda: {"host", "cloud", "notices", "judge"} <= set(watching.turns), "turns of the others")
    assert "runtime" not in watching.turns
    (late,) = [loop for loop in watch.loops.status() if loop.name == "runtime"]
    assert late.last_success is None


def test_a_failure_of_each_signal_is_counted_and_logged_once(
    watching: Watching, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    watching.site.do("fault", method="*Node*", code="PERMISSION_DENIED", message="no")
    watching.site.do("fault", method="metadata", code="UNAVAILABLE")
    watch = watching.start()
    names = {"cloud": "(denied)", "metadata": "(server)"}

    def lines(name: str) -> list[str]:
        return [one for one in caplog.messages if one.startswith(f"The signal {name} ")]

    def failures(name: str) -> float:
        text = watching.metrics.exposition()[0].decode()
        found = re.search(rf'^tpuwatch_signal_failures_total\{{signal="{name}"\}} (\S+)$', text, re.MULTILINE)
        return float(found[1]) if found else 0.0

    def fail(name: str) -> bool:
        wake(watch, {"metadata": "notices"}.get(name, name))
        return failures(name) >= 3

    for name, code in names.items():
        wait_for(lambda name=name: fail(name), f"failures of {name}")  # type: ignore[misc]
        assert len(lines(name)) == 1
        assert code in lines(name)[0]
        assert watching.up()[name] == 0
    assert failures("host") == failures("runtime") == 0
    watching.site.do("clear")
    starts = itertools.count(1800)  # without a change the metadata server lets a request wait

    def answers() -> bool:
        watching.site.do("maintain", in_seconds=float(next(starts)))
        for name in ("cloud", "notices"):
            wake(watch, name)
        return all(len(lines(name)) > 1 for name in names)

    wait_for(answers, "the all-clear")
    assert [lines(name)[1] for name in names] == [f"The signal {name} answers again." for name in names]


def test_a_port_on_which_something_else_listens_is_logged(watching: Watching, caplog: pytest.LogCaptureFixture) -> None:
    def other(connection: socket.socket) -> None:
        connection.sendall(b"SSH-2.0-OpenSSH\r\n")

    with listening(other) as port:
        watch = watching.start(runtime={"ports": [port]})
        wait_for(lambda: f"The signal runtime on port {port} does not answer (foreign)" in caplog.text, "the line")
        assert watch.signals.snapshot.runtime.problem is None
        watch.stop()


def test_problems_are_those_that_no_signal_has(watching: Watching, caplog: pytest.LogCaptureFixture) -> None:
    watching.site.do("fault", method="CreateTimeSeries", code="PERMISSION_DENIED", message="no")
    watch = watching.start(cloud={"zone": OTHER_ZONE}, monitoring={"export": True})
    wait_for(lambda: watch.signals.snapshot.identity.project.value and watch.judge.nodes, "the identity")
    wake(watch, "export")
    misplaced, export = wait_for(lambda: len(watch.problems()) > 1 and watch.problems(), "both problems") or ()
    assert f'The configuration says zone = "{OTHER_ZONE}" under [cloud], but this machine is in {ZONE}' in misplaced
    assert "monitoring.timeSeries.create" in export
    assert misplaced in caplog.messages
    watching.site.do("clear")
    wake(watch, "export")
    wait_for(lambda: watch.problems() == [misplaced], "the all-clear")


def test_what_googles_servers_answer_tells_the_time(watching: Watching) -> None:
    """The simulated cloud sends no date with its answers; the metadata server does."""
    signals = watching.start().signals
    wait_for(lambda: signals.snapshot.server_epoch is not None, "the metadata server's date")
    assert (signals.snapshot.server_epoch or 0.0) + time.monotonic() == pytest.approx(time.time(), abs=30)
