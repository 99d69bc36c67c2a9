"""Launches on a simulated host: they show what the daemon would know, and no more."""

from __future__ import annotations

import itertools
import random

from tests.proof.bench.simulated_host import GIB, MIB, World
from tests.proof.bench.simulated_launch import TunedHost
from tests.proof.test_simulated_host import world
from tpuwatch.model.launches import Launch, Outcome
from tpuwatch.model.tune import SET_VARIABLE, SIZE, THRESHOLD


def played(
    one: World, size: int | None, threshold: int | None = None, *, seed: int = 0, times: int = 200
) -> list[Launch]:
    host = TunedHost(one, random.Random(seed))
    for _ in range(times):
        host.launch(size, threshold)
    return host.launches


def plain(launches: list[Launch]) -> list[Launch]:
    """Those that came to their end, without a word of anything but their size."""
    others = {"tpu_in_use", "interrupted", "metadata_unreachable"}
    return [one for one in launches if others.isdisjoint(one.faults)]


def usual(launches: list[Launch], seconds: float) -> Launch:
    """One that took as long as it should."""
    return next(one for one in plain(launches) if one.init_seconds == seconds)


def test_the_same_dice_give_the_same_launches() -> None:
    one = world((GIB,) * 6, noise=0.05)
    assert played(one, None) == played(one, None)
    assert played(one, None) != played(one, None, seed=1)


def test_luck_does_not_depend_on_the_sizes() -> None:
    one = world((GIB,) * 6, noise=0.05)
    boots = [[launch.boot_id for launch in played(one, size)] for size in (None, 8 * GIB)]
    assert boots[0] == boots[1]


def test_a_launch_that_works() -> None:
    one = usual(played(world((GIB,) * 6), 8 * GIB, 2 * GIB), 7.0)
    assert (one.premapped_bytes, one.premapped_threshold_bytes) == (8 * GIB, 2 * GIB)
    assert (one.outcome, one.exit_status) == (Outcome.OK, 0)
    assert (one.premapped_failures, one.premapped_need_bytes, one.faults) == (0, None, {})
    assert one.ended is not None
    assert one.ended > one.started
    assert one.environment[SET_VARIABLE] == f"{SIZE},{THRESHOLD}"


def test_the_operators_own_size_has_no_mark() -> None:
    one = TunedHost(world(), random.Random(0)).launch(8 * GIB, by_operator=True)
    assert one.environment == {SIZE: str(8 * GIB)}


def test_a_failure_shows_the_first_transfer_that_has_no_room_and_no_more() -> None:
    found = [one for one in plain(played(world((GIB,) * 9), 4 * GIB + 512 * MIB)) if one.premapped_failures]
    assert len(found) > 150
    for one in found:
        assert one.premapped_asked_bytes == GIB
        assert one.premapped_need_bytes == 5 * GIB  # 9 are needed
        assert one.outcome in (Outcome.OK, Outcome.SLOW)  # it came up
        assert one.exit_status == 1
        assert set(one.faults) - {"slow_init"} == {"premapped_exhausted"}


def test_a_failure_comes_with_the_burst_that_is_too_large() -> None:
    early = plain(played(world((GIB,) * 9, (GIB,)), None, times=50))
    late = plain(played(world((GIB,), (GIB,) * 9), None, times=50))
    first, second = (sum(one.faults["premapped_exhausted"] for one in found) / len(found) for found in (early, late))
    assert second > 1.5 * first


def test_what_is_lost_between_buffers_is_free_and_of_no_use() -> None:
    one = next(one for one in played(world((GIB,) * 4, scatter=0.1), 4 * GIB) if one.premapped_failures)
    assert one.premapped_asked_bytes == GIB
    assert one.premapped_need_bytes == 5 * GIB  # as much was free as was asked for


def test_sizes_are_as_exact_as_the_log_words_them() -> None:
    asked = 1_234_567_168
    found = [one for one in played(world((asked,) * 9), None) if one.premapped_failures]
    assert {one.premapped_asked_bytes for one in found} == {round(1.15 * GIB)}


def test_in_which_order_transfers_come_differs() -> None:
    sizes = tuple(number * 200 * MIB for number in range(1, 10))
    needs = {one.premapped_need_bytes for one in played(world(sizes), None) if one.premapped_failures}
    assert len(needs) > 20
    assert max(need for need in needs if need) <= sum(sizes)


def test_no_region_leaves_no_line_of_it() -> None:
    one = played(world((9 * GIB,), generation="v4"), None)[0]
    assert (one.premapped_bytes, one.premapped_threshold_bytes, one.premapped_failures) == (None, None, 0)


def test_a_slow_launch_says_so() -> None:
    one = usual(played(world(), 40 * GIB), 23.0)
    assert one.outcome is Outcome.SLOW
    assert one.faults == {"slow_init": 23.0}


def test_the_first_launch_of_a_boot_is_cold_and_its_boot_tells_it() -> None:
    launches = played(world(), None, times=400)
    came_up = {one.id for one in plain(launches) if one.init_seconds is not None}
    pairs = [(earlier, later) for earlier, later in itertools.pairwise(launches) if later.id in came_up]
    cold = [later.init_seconds or 0.0 for earlier, later in pairs if earlier.boot_id != later.boot_id]
    warm = [later.init_seconds or 0.0 for earlier, later in pairs if earlier.boot_id == later.boot_id]
    assert len(cold) > 10
    assert min(cold) >= 25.0
    assert sum(seconds == 5.0 for seconds in warm) > 0.9 * len(warm)
    assert max(warm) > 10.0  # now and then it is slow, and nothing tells why


def test_a_metadata_time_out_leaves_its_mark() -> None:
    found = [one for one in played(world(), None, times=400) if "metadata_unreachable" in one.faults]
    assert 5 < len(found) < 40
    assert min(one.init_seconds or 99.0 for one in found) >= 15.0


def test_too_large_for_the_host_is_killed_or_does_not_start() -> None:
    one = world((GIB,), job=170 * 10**9)
    killed = plain(played(one, 16 * GIB))
    assert {(launch.outcome, launch.exit_status) for launch in killed} <= {(Outcome.OK, 137), (Outcome.SLOW, 137)}
    assert all("host_oom" in launch.faults for launch in killed)
    unable = plain(played(one, 400 * GIB))
    assert {launch.outcome for launch in unable} == {Outcome.KILLED, Outcome.FAILED}
    assert all(launch.init_seconds is None for launch in unable)
    assert {cause for launch in unable for cause in launch.faults} == {"host_oom", "init_failed"}


def test_the_host_tells_what_is_available_and_what_others_have_pinned() -> None:
    one = world()
    hosts = []
    host = TunedHost(one, random.Random(0))
    for _ in range(20):
        host.launch(None)
        hosts.append(host.host())
    assert host.host() == host.host()
    assert {state.total_bytes for state in hosts} == {192 * 10**9}
    assert all(
        0.97 * one.machine.free_bytes < (state.available_bytes or 0) <= one.machine.free_bytes for state in hosts
    )
    assert hosts[0].taken_bytes == 0
