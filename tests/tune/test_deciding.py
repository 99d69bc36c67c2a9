"""From launches, host and configuration to the plan."""

from __future__ import annotations

from pathlib import Path

from tests.tune.recorded import NOW, launch
from tpuwatch.config import Config
from tpuwatch.config.tune import Tune
from tpuwatch.tune.deciding import bounds_of, make_plan, workloads
from tpuwatch.tune.model import SIZE, THRESHOLD, Host, Step
from tpuwatch.tune.visibility import LogFacts, Place

GIB = 1 << 30
HOST = Host("v5e", 256 * GIB, 200 * GIB)
LOGS = (LogFacts("/tmp/tpu_logs", Place.READY, 100 * GIB),)  # noqa: S108 (where libtpu writes)


def test_bounds_are_what_the_configuration_says() -> None:
    tune = Tune(least_mib=512, most_mib=1024, memory_percent=50, headroom_percent=10, window_launches=7, pathways=True)
    bounds = bounds_of(Config(tune=tune))
    assert (bounds.least_bytes, bounds.most_bytes) == (512 << 20, 1024 << 20)
    assert (bounds.memory_share, bounds.headroom, bounds.window, bounds.power_of_two) == (0.5, 0.1, 7, True)
    assert bounds.init_seconds == Config().logs.slow_init_seconds


def test_workloads_are_kept_apart_and_those_without_a_name_are_one() -> None:
    launches = [
        launch(started=NOW + 3, workload="b"),
        launch(started=NOW + 1, workload=""),
        launch(started=NOW + 2, workload="a"),
        launch(started=NOW, workload="b"),
        launch(started=NOW + 4, workload="../no"),
    ]
    found = workloads(launches)
    assert {name: [one.started - NOW for one in several] for name, several in found.items()} == {
        "a": [2],
        "b": [0, 3],
        "default": [1, 4],
    }
    assert list(found) == ["a", "b", "default"]  # the one that was launched last comes last


def test_what_was_before_a_reset_is_forgotten() -> None:
    launches = [launch(started=NOW + number) for number in range(3)]
    assert [one.started for one in workloads(launches, {"train": NOW + 1})["train"]] == [NOW + 1, NOW + 2]
    assert workloads(launches, {"train": NOW + 9}) == {}


def test_a_plan_has_the_buffer_what_makes_launches_visible_and_whose_configuration_it_is() -> None:
    plan = make_plan(Config(), [launch()], HOST, "train", NOW, LOGS)
    values = {setting.name: setting.value for setting in plan.settings}
    assert (plan.workload, plan.decided, plan.config, plan.generation) == ("train", NOW, "", "v5e")
    assert plan.decision.step is Step.GROW
    assert int(values[SIZE]) == plan.decision.size_bytes is not None
    assert int(values[SIZE]) >= 6 * GIB
    assert values["TPU_LOG_DIR"] == "/tmp/tpu_logs"  # noqa: S108
    assert values["LIBTPU_INIT_ARGS"] == "--logbuflevel=-1"
    assert all(setting.why for setting in plan.settings)


def test_pins_win() -> None:
    config = Config(tune=Tune(pins={SIZE: "8589934592", "TPU_MIN_LOG_LEVEL": "1", "TPU_MEGACORE": "x"}))
    plan = make_plan(config, [launch()], HOST, "train", NOW, LOGS)
    values = {setting.name: setting.value for setting in plan.settings}
    assert (values[SIZE], values["TPU_MIN_LOG_LEVEL"], values["TPU_MEGACORE"]) == ("8589934592", "1", "x")
    assert plan.decision.step is Step.PINNED
    assert len(values) == len(plan.settings)


def test_without_history_the_size_is_left_to_libtpu() -> None:
    plan = make_plan(Config(), [], HOST, "new", NOW)
    assert {setting.name for setting in plan.settings}.isdisjoint({SIZE, THRESHOLD})
    assert plan.decision.step is Step.START


def test_another_state_of_the_configuration_is_told_from_the_first(tmp_path: Path) -> None:
    from tpuwatch.config import load_config

    path = tmp_path / "c.toml"
    path.write_text("[tune]\n")
    first = make_plan(load_config(path, {}), [], HOST, "x", NOW).config
    path.write_text("[tune]\nleast_mib = 300\n")
    assert first.startswith(str(path))
    assert make_plan(load_config(path, {}), [], HOST, "x", NOW).config != first


def test_a_launch_of_the_future_counts_once_its_time_has_come() -> None:
    """It was told when the clock was ahead; else it would be the last one for as long, and no reset would forget it."""
    launches = [launch(started=NOW + seconds) for seconds in (-5, 200, 86_400)]
    assert [one.started - NOW for one in workloads(launches, now=NOW)["train"]] == [-5, 200]
    assert len(workloads(launches, now=NOW + 86_400)["train"]) == 3
    assert workloads(launches[2:], {"train": NOW}, NOW) == {}
