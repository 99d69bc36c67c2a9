"""The node side with its real witnesses, over a simulated cloud in this process."""

from __future__ import annotations

import functools
import itertools
import logging
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemon_process import wait_for
from tests.node.agent_server import agent_server, status
from tests.node.runtime_server import listening
from tests.simulated import OTHER_ZONE, ZONE
from tests.watching import BLACK_HOLE, Watching, problem, verdicts, wake, watched
from tpuwatch.daemon import nodewatch
from tpuwatch.daemon.nodewatch import FIRST_SECONDS
from tpuwatch.export.view import NodeStatus
from tpuwatch.health.evidence import Known, Problem, Witness
from tpuwatch.health.verdict import Rung, Verdict
from tpuwatch.model import Cause
from tpuwatch.node import metadata

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
        ({}, {"runtime", "cloud", "notices"}, {"monitoring", "agent"}),
        ({"agents": {"enabled": True}}, {"runtime", "cloud", "notices", "agent"}, {"monitoring"}),
        ({"cloud": {"enabled": False}}, {"runtime"}, {"cloud", "metadata", "monitoring", "agent"}),
        ({"runtime": {"enabled": False}}, {"cloud", "notices"}, {"runtime", "monitoring", "agent"}),
        (
            {"monitoring": {"read": True, "export": True}},
            {"runtime", "cloud", "notices", "monitoring", "export"},
            {"agent"},
        ),
        (
            {"cloud": {"enabled": False}, "runtime": {"enabled": False}, "monitoring": {"export": True}},
            {"export"},
            {"cloud", "runtime", "metadata", "monitoring", "agent"},
        ),
    ],
)
def test_what_the_configuration_switches_on_is_asked_and_nothing_else(
    watching: Watching, changes: dict[str, Any], more: set[str], off: set[str]
) -> None:
    watch = watching.start(**changes)
    assert watch.limits().keys() == {loop.name for loop in watch.loops()} == ALWAYS | more
    on = {witness.value for witness in Witness} - off - {"logs"}  # the log side tells of those
    wait_for(lambda: all(watching.up().get(name) for name in on), f"{on} to answer")
    assert watching.up().keys() == on | {"logs"}
    assert {one.name for one in watch.witnesses() if one.problem is Problem.OFF} == off
    wait_for(lambda: set(watching.turns) == ALWAYS | more, "a turn of every loop")
    assert all(loop.fresh for loop in watch.loops())
    called = {call.method for call in watching.site.world.calls}
    assert ("ListNodes" in called) == ("cloud" in more)
    assert ("GetRuntimeMetric" in called) == ("runtime" in more)
    assert ("ListTimeSeries" in called) == ("monitoring" in more)
    assert watch.problems() == []


def test_who_this_machine_is_once_told_wakes_those_who_waited_for_it(watching: Watching) -> None:
    watching.site.do("fault", method="metadata", code="UNAVAILABLE")
    patient = {"poll_seconds": 3600.0, "timeout_seconds": 60.0}  # one that fails would not ask again in time
    rarely = {"cloud": {**patient, "nodes": []}, "runtime": {"ports": [], "poll_seconds": 600.0}}
    watch = watching.start(**rarely)
    wait_for(lambda: set(watching.turns) >= {"cloud", "runtime"} and watch.nodes, "the first verdict")
    assert problem(watch, Witness.CLOUD) is Problem.UNCONFIGURED
    assert [one.node for one in watch.nodes] == ["this-vm"]
    watching.site.do("clear")
    wake(watch, "identity")
    wait_for(lambda: verdicts(watch) == {"train-1": Verdict.HEALTHY}, "this machine's node")
    answer = watch.posted.runtime
    assert answer.value is not None
    assert [port.port for port in answer.value.ports] == list(watching.site.simulator.runtime.ports)


def test_the_first_words_wake_only_those_who_waited_for_them(
    watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is woken asks at once: nobody is to be asked twice because others have come to word meanwhile."""
    watch = watching.new(monitoring={"read": True}, agents={"enabled": True})
    woken: list[str] = []
    for name, (loop, _) in watch._loops.items():

        def wake(name: str = name, really: Callable[[], None] = loop.wake) -> None:
            woken.append(name)
            really()

        monkeypatch.setattr(loop, "wake", wake)
    watch.start()
    wait_for(lambda: set(watching.turns) == set(watch.limits()), "a turn of every loop")
    assert {name: woken.count(name) for name in watch.limits() if name not in ("judge", "agent")} == {
        "host": 0,
        "identity": 0,
        "notices": 0,
        "cloud": 1,
        "runtime": 1,
        "monitoring": 1,
    }
    watch.stop()


def test_a_runtime_that_owes_an_answer_is_told_of_until_it_is_not_watched(watching: Watching) -> None:
    with listening() as port:
        series = f'tpuwatch_runtime_waiting_seconds{{port="{port}"}} '

        def owed() -> float:
            text = shown(watching)
            return float(text.partition(series)[2].split()[0]) if series in text else -1.0

        watch = watching.start(runtime={"ports": [port]})
        assert wait_for(lambda: owed() > 0, "an answer that is owed")
        watch.stop()
        assert owed() == -1


def test_another_nodes_tpuwatch_is_asked_and_its_silence_is_told(watching: Watching) -> None:
    with agent_server() as server:
        server.reply = status("train-2", "idle")
        agents = {"enabled": True, "addresses": {"train-2": server.url}, "poll_seconds": 1.0, "timeout_seconds": 0.5}
        watch = watching.start(agents={**agents, "silent_seconds": 10.0})
        wait_for(lambda: verdicts(watch).get("train-2") is Verdict.IDLE, "its word")
        wait_for(lambda: 'tpuwatch_agent_up{node="train-2"} 1.0' in shown(watching), "it to count as up")
        server.reply = None

        def told() -> NodeStatus | None:
            watching.clock.ahead += 0.2
            for name in ("agent", "cloud"):
                wake(watch, name)
            (other,) = [one for one in watch.nodes if one.node == "train-2"]
            return other if other.judgement.rung is Rung.ASK else None

        other = wait_for(told, "its silence to count")
        assert other is not None
        wait_for(lambda: 'tpuwatch_agents{state="silent"} 1.0' in shown(watching), "it to be counted")
        assert other.agent is not None
        assert other.agent.silent_since is not None
        assert other.judgement.verdict is Verdict.UNKNOWN
        assert [reason.witness for reason in other.judgement.reasons] == [Witness.AGENT]
        watch.stop()


def test_the_first_verdict_waits_for_the_first_words_but_not_for_ever(
    watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodewatch, "FIRST_SECONDS", FIRST_SECONDS + 600)  # more than the test takes by itself
    monkeypatch.setattr(metadata, "Metadata", functools.partial(metadata.Metadata, timeout_seconds=600.0))
    watching.site.do("fault", method="metadata", **BLACK_HOLE)
    watch = watching.start()
    wait_for(lambda: {"judge", "host"} <= set(watching.turns), "the first turns")
    assert watch.nodes == ()
    assert watch.posted.identity.project == Known("sim-project", "config")  # so much is known without it
    assert "ListNodes" not in {call.method for call in watching.site.world.calls}
    assert watching.turns.count("cloud") == watching.turns.count("runtime") == 0  # to wait is no success
    watching.clock.ahead = FIRST_SECONDS + 600
    wake(watch, "cloud")
    wake(watch, "judge")
    wait_for(lambda: watch.nodes, "a verdict")


def test_a_loop_that_has_not_come_round_yet_is_late_only_after_its_time(watching: Watching) -> None:
    watch = watching.new()
    assert all(loop.fresh and loop.last_success is None for loop in watch.loops())
    watching.clock.ahead = min(watch.limits().values())
    assert not all(loop.fresh for loop in watch.loops())


# -- notices


def test_a_notice_is_one_event_also_across_a_restart(watching: Watching) -> None:
    watch = watching.start()
    wait_for(lambda: watch.posted.notices.value, "the metadata server")
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
    assert watching.journal.commit(first, []) == first

    again = watching.start()
    wait_for(lambda: len(watching.events) == 2, "both notices to be read again")
    assert verdicts(again).keys() <= {"train-1", "train-2"}
    assert watching.journal.commit(watching.events, []) == []  # the journal knows them


def test_a_metadata_server_that_fails_between_two_notices_makes_no_second_event(watching: Watching) -> None:
    watch = watching.start()
    watching.site.do("maintain", in_seconds=1800.0)
    wait_for(lambda: watching.events, "the event")
    watching.site.do("fault", method="metadata", code="UNAVAILABLE")
    watching.site.do("preempt")  # the request that waits is answered, the next one is refused
    wait_for(lambda: problem(watch, Witness.METADATA) is Problem.SERVER, "the failure")
    watching.site.do("clear")
    wait_for(lambda: problem(watch, Witness.METADATA) is None, "the all-clear")
    wait_for(lambda: len(watching.events) > 1, "the preemption")
    assert [event.cause for event in watching.events] == [Cause.MAINTENANCE, Cause.PREEMPTED]


# -- what goes wrong


def test_a_witness_that_raises_what_nobody_foresaw_is_told_and_the_others_go_on(
    watching: Watching, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def ask(_: object) -> None:
        raise ZeroDivisionError("nobody foresaw this")

    monkeypatch.setattr("tpuwatch.node.runtime.RuntimeWitness.ask", ask)
    watch = watching.start()
    watching.clock.ahead = FIRST_SECONDS  # nobody waits for its first word any more
    wake(watch, "judge")
    wait_for(lambda: verdicts(watch).get("train-2") is Verdict.HEALTHY, "the verdicts")
    wait_for(lambda: "A turn of the loop runtime failed." in caplog.text, "word of it")
    assert "nobody foresaw this" in caplog.text
    wait_for(lambda: {"host", "cloud", "notices", "judge"} <= set(watching.turns), "turns of the others")
    assert "runtime" not in watching.turns
    (late,) = [loop for loop in watch.loops() if loop.name == "runtime"]
    assert late.last_success is None


def test_a_failure_of_each_witness_is_counted_and_told_once(
    watching: Watching, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    watching.site.do("fault", method="ListNodes", code="PERMISSION_DENIED", message="no")
    watching.site.do("fault", method="metadata", code="UNAVAILABLE")
    watch = watching.start()
    names = {"cloud": "(denied)", "metadata": "(server)"}

    def told(name: str) -> list[str]:
        return [one for one in caplog.messages if one.startswith(f"The witness {name} ")]

    def failures(name: str) -> float:
        text = watching.metrics.exposition()[0].decode()
        found = re.search(rf'^tpuwatch_witness_failures_total\{{witness="{name}"\}} (\S+)$', text, re.MULTILINE)
        return float(found[1]) if found else 0.0

    def fail(name: str) -> bool:
        wake(watch, {"metadata": "notices"}.get(name, name))
        return failures(name) >= 3

    for name, code in names.items():
        wait_for(lambda name=name: fail(name), f"failures of {name}")  # type: ignore[misc]
        assert len(told(name)) == 1
        assert code in told(name)[0]
        assert watching.up()[name] == 0
    assert failures("host") == failures("runtime") == 0
    watching.site.do("clear")
    starts = itertools.count(1800)  # without a change the metadata server lets a request wait

    def answers() -> bool:
        watching.site.do("maintain", in_seconds=float(next(starts)))
        for name in ("cloud", "notices"):
            wake(watch, name)
        return all(len(told(name)) > 1 for name in names)

    wait_for(answers, "the all-clear")
    assert [told(name)[1] for name in names] == [f"The witness {name} answers again." for name in names]


def test_a_port_on_which_something_else_listens_is_told_in_the_log(
    watching: Watching, caplog: pytest.LogCaptureFixture
) -> None:
    def other(connection: socket.socket) -> None:
        connection.sendall(b"SSH-2.0-OpenSSH\r\n")

    with listening(other) as port:
        watch = watching.start(runtime={"ports": [port]})
        wait_for(lambda: f"The witness runtime on port {port} does not answer (foreign)" in caplog.text, "the line")
        assert watch.posted.runtime.problem is None
        watch.stop()


def test_problems_are_those_that_no_witness_has(watching: Watching, caplog: pytest.LogCaptureFixture) -> None:
    watching.site.do("fault", method="CreateTimeSeries", code="PERMISSION_DENIED", message="no")
    watch = watching.start(cloud={"zone": OTHER_ZONE}, monitoring={"export": True})
    wait_for(lambda: watch.posted.identity.project.value and watch.nodes, "the identity")
    wake(watch, "export")
    misplaced, export = wait_for(lambda: len(watch.problems()) > 1 and watch.problems(), "both problems") or ()
    assert f'The configuration says zone = "{OTHER_ZONE}" under [cloud], but this machine is in {ZONE}' in misplaced
    assert "monitoring.timeSeries.create" in export
    assert misplaced in caplog.messages
    watching.site.do("clear")
    wake(watch, "export")
    wait_for(lambda: watch.problems() == [misplaced], "the all-clear")
