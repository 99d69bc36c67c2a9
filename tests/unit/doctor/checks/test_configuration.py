from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.daemon_process import RULES
from tests.standins.doctor_machine import ManualClock
from tpuwatch.config import Config, load_config
from tpuwatch.core import ConfigError
from tpuwatch.doctor.check import CheckStatus, Result
from tpuwatch.doctor.checks.configuration import CHECKS
from tpuwatch.doctor.environment import Environment

(CHECK,) = CHECKS


def results(path: Path) -> list[Result]:
    try:
        config, error = load_config(path, {}), None
    except ConfigError as refused:
        config, error = Config(), refused
    return CHECK.results(Environment(config, {}, ManualClock(), config_error=error))


def test_a_valid_and_consistent_one_is_ok(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text("[state]\nmax_age_days = 7\n")
    assert results(path) == [Result(CheckStatus.OK, "It is valid and consistent.")]


def test_each_error_is_wrong_and_tells_by_what_the_others_go(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('[http]\nlistn = "x"\n[logs]\npoll_seconds = "often"\n')
    first, second = sorted(results(path), key=lambda result: result.text)
    assert (first.status, second.status) == (CheckStatus.WRONG, CheckStatus.WRONG)
    assert "http.listn is not a key of tpuwatch" in first.text
    assert 'logs.poll_seconds cannot be "often"' in second.text
    assert "The other checks go by the defaults" in first.fix


def test_a_setting_in_vain_is_a_warning_with_its_fix(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text("[restart]\nrestart_node = true\n")
    (result,) = results(path)
    assert result.status is CheckStatus.WARN
    assert result.text == 'restart.restart_node = true has no effect under restart.mode = "observe".'
    assert result.fix == 'Set mode = "act".'


def test_one_that_may_not_be_read_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c.toml"
    path.write_text("")

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)  # root may read whatever its mode
    (result,) = results(path)
    assert result.status is CheckStatus.UNKNOWN
    assert "Permission denied. The other checks go by the defaults." in result.text


def test_a_rule_that_others_can_change_is_a_warning_and_such_a_configuration_is_wrong(tmp_path: Path) -> None:
    path, rules = tmp_path / "c.toml", tmp_path / "rules"
    rules.mkdir()
    (rules / "own.toml").write_text(RULES)
    path.write_text(f'[logs]\nrules = ["{rules}"]\n')
    (rules / "own.toml").chmod(0o666)
    (result,) = results(path)
    assert (result.status, f"{rules}/own.toml can be changed by everybody" in result.text) == (CheckStatus.WARN, True)
    path.chmod(0o666)
    (result,) = results(path)
    assert (result.status, f"{path} can be changed by everybody" in result.text) == (CheckStatus.WRONG, True)
