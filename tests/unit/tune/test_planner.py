"""From launches, host and configuration to the plan."""

from __future__ import annotations

from pathlib import Path

from tests.unit.tune.recorded import NOW, launch
from tpuwatch.config import Config, load_config
from tpuwatch.config.tune import TuneConfig
from tpuwatch.libtpu.log_settings import LogDirectoryState, LogFacts
from tpuwatch.model.tune import SIZE, SizeStep, TuneHost
from tpuwatch.tune.planner import bounds_of, launches_by_workload, make_plan

GIB = 1 << 30
HOST = TuneHost("v5e", 200 * GIB)
LOGS = (LogFacts("/tmp/tpu_logs", LogDirectoryState.READY, 100 * GIB),)  # noqa: S108 (where libtpu writes)


def test_bounds_are_what_the_configuration_says() -> None:
    tune = TuneConfig(
        min_mib=512, max_mib=1024, memory_percent=50, headroom_percent=10, window_launches=7, pathways=True
    )
    bounds = bounds_of(Config(tune=tune))
    assert (bounds.min_bytes, bounds.max_bytes) == (512 << 20, 1024 << 20)
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
    found = launches_by_workload(launches)
    assert {name: [one.started - NOW for one in several] for name, several in found.items()} == {
        "a": [2],
        "b": [0, 3],
        "default": [1, 4],
    }
    assert list(found) == ["a", "b", "default"]  # the one that was launched last comes last


def test_what_was_before_a_reset_is_forgotten() -> None:
    launches = [launch(started=NOW + number) for number in range(3)]
    assert [one.started for one in launches_by_workload(launches, {"train": NOW + 1})["train"]] == [NOW + 1, NOW + 2]
    assert launches_by_workload(launches, {"train": NOW + 9}) == {}


def test_a_plan_has_the_buffer_what_makes_launches_visible_and_whose_configuration_it_is() -> None:
    plan = make_plan(Config(), [launch()], HOST, "train", NOW, LOGS)
    values = {setting.name: setting.value for setting in plan.settings}
    assert (plan.workload, plan.decided, plan.config, plan.generation) == ("train", NOW, "", "v5e")
    assert plan.decision.step is SizeStep.GROW
    assert int(values[SIZE]) == plan.decision.size_bytes is not None
    assert int(values[SIZE]) >= 6 * GIB
    assert values["TPU_LOG_DIR"] == "/tmp/tpu_logs"  # noqa: S108
    assert values["LIBTPU_INIT_ARGS"] == "--logbuflevel=-1"
    assert all(setting.why for setting in plan.settings)


def test_overrides_win() -> None:
    config = Config(tune=TuneConfig(overrides={SIZE: "8589934592", "TPU_MIN_LOG_LEVEL": "1", "TPU_MEGACORE": "x"}))
    plan = make_plan(config, [launch()], HOST, "train", NOW, LOGS)
    values = {setting.name: setting.value for setting in plan.settings}
    assert (values[SIZE], values["TPU_MIN_LOG_LEVEL"], values["TPU_MEGACORE"]) == ("8589934592", "1", "x")
    assert plan.decision.step is SizeStep.OVERRIDDEN
    assert len(values) == len(plan.settings)


def test_another_state_of_the_configuration_differs_from_the_first(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text("[tune]\n")
    first = make_plan(load_config(path, {}), [], HOST, "x", NOW, LOGS).config
    path.write_text("[tune]\nmin_mib = 300\n")
    assert first.startswith(str(path))
    assert make_plan(load_config(path, {}), [], HOST, "x", NOW, LOGS).config != first


def test_a_launch_of_the_future_counts_once_its_time_has_come() -> None:
    """It was logged when the clock was ahead; else it would stay the last one, and no reset would exclude it."""
    launches = [launch(started=NOW + seconds) for seconds in (-5, 200, 86_400)]
    assert [one.started - NOW for one in launches_by_workload(launches, now=NOW)["train"]] == [-5, 200]
    assert len(launches_by_workload(launches, now=NOW + 86_400)["train"]) == 3
    assert launches_by_workload(launches[2:], {"train": NOW}, NOW) == {}
