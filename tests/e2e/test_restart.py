"""Restarts by daemons: real processes over a simulated cloud, with one ledger."""

from __future__ import annotations

import pytest

from tests.e2e.daemon_process import wait_for
from tests.e2e.restart_fleet import ACT, BEGUN, LATER_SECONDS, NOT_VERIFIED, QUICK, Fleet, restarted
from tests.standins.simulated import ZONE


@pytest.mark.parametrize("fleet", ["simulated", "second"], indirect=True)
def test_a_dead_node_requests_a_restart_and_is_restarted_once_by_the_daemon_that_watches_it(fleet: Fleet) -> None:
    inside, outside = fleet.inside(**ACT), fleet.outside(**ACT)
    outside.judged("train-1", "healthy")
    assert outside.metric(BEGUN) == outside.metric(NOT_VERIFIED) == 0
    assert not list(fleet.ledger.iterdir())  # while nothing is wrong, nothing is written
    fleet.die()
    inside.judged("train-1", "unknown", "node_stuck")
    inside.skip(LATER_SECONDS)
    restarted(fleet, outside)

    assert inside.metric("tpuwatch_restart_requests_total") == 1
    assert inside.metric('tpuwatch_restarts_blocked_total{reason="own_node"}') >= 1
    assert inside.metric(BEGUN) == 0
    assert "StopNode" not in inside.ask("/metrics")[1]  # not one call that changes something
    assert ("restart_node", "requested", None) in inside.audited()
    assert ("restart_node", "blocked", "own_node") in inside.audited()

    assert outside.metric(BEGUN) == 1
    restarts = [one for one in outside.audited() if one[1] in ("begun", "not_verified")]
    assert restarts == [("restart_node", "begun", None), ("restart_node", "not_verified", None)]
    wait_for(lambda: fleet.phase(outside) == "not_verified", "the end to be shown")
    told = wait_for(
        lambda: [one for one in fleet.listener.heard if one["event"] == "restart_not_verified"], "a message"
    )
    assert "that it works is not verified" in told[0]["text"]
    assert len(told) == 1
    document = outside.api("restarts")
    (record,) = document["restarts"]
    assert (document["mode"], record["stops"], record["open"]) == ("act", 1, False)
    assert "cloud" in record["signals"]
    assert len(record["signals"]) > 1
    assert any(one.startswith("request of tpuwatch@") for one in record["evidence"])
    assert not document["breaker"]["open"]
    assert outside.stop() == inside.stop() == 0
    assert "Traceback" not in inside.said() + outside.said()


def test_by_default_it_reports_what_it_would_do_and_does_nothing(fleet: Fleet) -> None:
    inside, outside = fleet.inside(**QUICK), fleet.outside(**QUICK)
    fleet.die_seen(inside, outside)
    wait_for(lambda: ("restart_node", "blocked", "own_node") in inside.audited(), "the decision inside")
    wait_for(lambda: ("manual", "nothing", None) in outside.audited(), "the decision outside")
    alerts = wait_for(lambda: [one for one in fleet.listener.heard if one["blocked"] is None], "an alert")
    assert alerts[0]["event"] == "person_needed"
    assert "train-1 (zone us-central2-b, project sim-project): An operator is needed: " in alerts[0]["text"]
    assert alerts[0]["do"]
    assert fleet.happened("stop", "start", "reset") == []
    assert not list(fleet.ledger.iterdir())
    for daemon in (inside, outside):
        assert daemon.metric(BEGUN) == daemon.metric("tpuwatch_restart_requests_total") == 0
        assert "StopNode" not in daemon.ask("/metrics")[1]
        assert daemon.stop() == 0
        assert fleet.listener.url not in daemon.said()
        shown = daemon.command("config", "show")[1].replace("(secret)", "").replace("/run/secrets/", "")
        assert "secret" not in daemon.said() + shown


def test_a_daemon_that_observes_finishes_the_restart_of_one_killed_between_stop_and_start(fleet: Fleet) -> None:
    fleet.site.world.timing.stop = 3600.0
    inside, outside = fleet.inside(**ACT), fleet.outside(**ACT)
    fleet.die_seen(inside, outside)
    wait_for(lambda: fleet.phase(outside) == "stopping", "the stop")
    outside.kill()
    inside.kill()
    fleet.site.finish()
    wait_for(lambda: fleet.state() == "STOPPED", "the node to be stopped")
    assert fleet.happened("start") == []
    restarted(fleet, after := fleet.outside("after", **QUICK))
    assert after.metric(BEGUN) == 0
    assert [one[1] for one in after.audited() if one[0] == "restart_node"][:1] == ["taken_up"]


def test_a_restart_in_progress_is_shown_and_survives_a_reload_and_a_restart_of_the_daemon(fleet: Fleet) -> None:
    fleet.site.do("fault", method="StartNode", code="RESOURCE_EXHAUSTED", message="There is no more capacity.")
    inside, outside = fleet.inside(**ACT), fleet.outside(**ACT, stockout_alert_after=1)
    fleet.die_seen(inside, outside)
    wait_for(lambda: outside.metric("tpuwatch_restarts_waiting_for_capacity") == 1, "the start to be refused")
    assert outside.metric('tpuwatch_restarts_open{phase="stopped"}') == 1
    assert outside.series("tpuwatch_restart_phase_timestamp_seconds").keys() == {
        f'{{node="train-1",phase="stopped",zone="{ZONE}"}}'
    }
    alerts = wait_for(lambda: [one for one in fleet.listener.heard if one["event"] == "restart_hindered"], "an alert")
    assert "capacity" in alerts[0]["text"]
    wait_for(lambda: fleet.phase(outside) == "stopped", "it to be shown")
    assert "train-1: restart node is about to start the node" in outside.command("status")[1]
    assert "is about to start the node" in outside.ask("/")[1]

    fleet.again(outside, **QUICK, stockout_alert_after=2)
    wait_for(lambda: fleet.phase(outside) == "stopped", "it to be taken up again")
    assert outside.stop() == 0
    assert fleet.happened("stop", "start") == ["stop"]
    fleet.site.do("clear")
    outside.start()
    outside.skip(LATER_SECONDS)  # the next start is due
    restarted(fleet, outside)
