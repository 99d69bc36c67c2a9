"""The end of the node side: at once, whatever its calls wait for, and with nothing left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.daemon_process import wait_for
from tests.standins.simulated import OTHER_ZONE, ZONE
from tests.unit.daemon.watching import BLACK_HOLE, Watching, ended, under_way, wake, watched
from tpuwatch.daemon.node_services import NodeServices


@pytest.fixture
def watching(tmp_path: Path) -> Iterator[Watching]:
    with watched(tmp_path) as watching:
        yield watching


def quiet_after(watching: Watching, watch: NodeServices) -> None:
    """It comes to its end, and what its calls still bring goes nowhere."""
    begun = time.monotonic()
    watch.stop()
    took = time.monotonic() - begun
    posted, turns, shown = watch.signals.snapshot, len(watching.turns), watching.metrics.exposition()[0]
    assert ended(watch)
    assert took < 60  # its calls had two minutes
    assert watch.signals.snapshot is posted
    assert len(watching.turns) == turns
    assert strip(watching.metrics.exposition()[0]) == strip(shown)


def strip(exposition: bytes) -> list[bytes]:
    """Without what changes by itself, and without the calls: those that were broken off have been made."""
    other = (b"process_", b"python_", b"tpuwatch_api_requests", b"# ")
    return [line for line in exposition.splitlines() if not line.startswith(other)]


@pytest.mark.parametrize("method", ["ListNodes", "ListTimeSeries", "CreateTimeSeries"])
def test_a_stop_does_not_wait_for_a_call_in_a_black_hole(
    watching: Watching, caplog: pytest.LogCaptureFixture, method: str
) -> None:
    watching.site.do("fault", method=method, **BLACK_HOLE)
    watch = watching.start(
        cloud={"timeout_seconds": 120.0, "nodes": [f"{OTHER_ZONE}/*", f"{ZONE}/*"]},
        monitoring={"read": True, "export": True},
    )
    wait_for(lambda: watch.signals.snapshot.notices.value and watch.signals.snapshot.runtime.value, "the others")
    if method == "CreateTimeSeries":
        wait_for(lambda: watch.judge.nodes, "what is to be exported")
        wake(watch, "export")
    wait_for(lambda: under_way(watching.site, method), f"a call of {method}")
    quiet_after(watching, watch)
    assert caplog.messages == [one for one in caplog.messages if " is healthy " in one]
    assert len([call for call in watching.site.world.calls if call.method == method]) == 1  # no other zone was asked


def test_a_stop_does_not_wait_for_the_metadata_server(watching: Watching) -> None:
    waits = watching.start()
    wait_for(lambda: waits.signals.snapshot.notices.value, "the notices")  # the next request waits for a change
    quiet_after(watching, waits)
    watching.site.do("fault", method="metadata", **BLACK_HOLE)
    hangs = watching.start()
    wait_for(lambda: "judge" in watching.turns, "the start")
    quiet_after(watching, hangs)


def test_one_that_was_never_started_can_be_stopped(watching: Watching) -> None:
    watch = watching.new()
    watch.stop()
    watch.stop()
    assert watching.turns == []


@pytest.mark.slow
def test_twenty_starts_and_stops_leave_nothing_behind(watching: Watching) -> None:
    def here() -> tuple[int, int, int]:
        files, tasks = (len(list(Path(f"/proc/self/{what}").iterdir())) for what in ("fd", "task"))
        return threading.active_count(), files, tasks

    def once(number: int) -> None:
        if number % 2:
            watching.site.do("fault", method="ListNodes", **BLACK_HOLE)
        before = len(watching.site.world.calls)
        watch = watching.start(monitoring={"read": True})
        asked = "ListNodes" if number % 2 else "ListTimeSeries"
        wait_for(lambda: asked in {call.method for call in list(watching.site.world.calls)[before:]}, asked)
        watch.stop()
        assert ended(watch)
        watching.site.do("clear")

    for number in range(4):  # gRPC's own threads come, and stay
        once(number)
    watching.made.clear()
    before = here()
    for number in range(20):
        once(number)
    watching.made.clear()
    # gRPC's pool may still have grown by some threads; what is left behind by each would be twenty.
    wait_for(lambda: all(now <= then + 10 for now, then in zip(here(), before, strict=True)), f"{before} again")
