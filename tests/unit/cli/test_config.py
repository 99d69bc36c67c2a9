"""`tpuwatch config check` and `config show`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.e2e.daemon_process import RULES
from tpuwatch.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "own.toml").write_text(RULES)
    (tmp_path / "c.toml").write_text(f'[logs]\nrules = ["{tmp_path}/rules"]\n[http]\nlisten = "[::1]:0"\n')
    return tmp_path / "c.toml"


def test_a_good_one(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "check", "--config", str(file)]) == 0
    assert capsys.readouterr().out.startswith(f"{file}: valid, consistent; ")
    assert main(["config", "check", "--json", "--config", str(file)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["source"] == str(file)
    assert document["refused"] == []
    assert document["rules"] > 50


def test_a_rule_that_is_refused_is_wrong(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file.parent / "rules" / "own.toml").write_text(RULES.replace('"hang"', '"hagn"'))
    assert main(["config", "check", "--config", str(file)]) == 1
    (refused,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("Refused: "))
    assert "own.toml" in refused
    assert "test-event" in refused
    assert main(["config", "check", "--json", "--config", str(file)]) == 1
    assert len(json.loads(capsys.readouterr().out)["refused"]) == 1


def test_a_rule_that_slows_the_reading_is_named_and_is_no_error(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = file.parent / "rules" / "own.toml"
    assert main(["config", "check", "--config", str(file)]) == 0
    assert "Slow: " not in capsys.readouterr().out
    rule = RULES.partition("match =")[0] + "match = ['checkpoint .*']\nexamples = ['checkpoint 7']\n"
    own.write_text(rule)
    assert main(["config", "check", "--config", str(file)]) == 0
    (slow,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("Slow: "))
    assert slow.startswith(
        f"Slow: {own}: rule test-event: it is looked for by 'checkpoint ', which stands in many lines"
    )
    assert slow.endswith("match a longer text that is rare in them")
    assert main(["config", "check", "--json", "--config", str(file)]) == 0
    assert json.loads(capsys.readouterr().out)["slow"] == [slow.removeprefix("Slow: ")]


def test_what_is_in_force(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "--config", str(file)]) == 0
    text = capsys.readouterr().out
    assert 'listen = "[::1]:0"  # file' in text
    assert "poll_seconds = 1.0  # default" in text
    assert main(["config", "show", "--json", "--config", str(file)]) == 0
    assert json.loads(capsys.readouterr().out)["values"]["http"]["listen"] == "[::1]:0"


def test_an_empty_one_is_good(file: Path) -> None:
    file.write_bytes(b"")
    assert main(["config", "check", "--config", str(file)]) == 0


@pytest.mark.parametrize(
    ("content", "answer"), [(b"[logs", "not TOML"), (b"[stat]\n", "stat is not a key of tpuwatch; did you mean state?")]
)
def test_a_bad_one_is_explained(file: Path, content: bytes, answer: str, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_bytes(content)
    assert main(["config", "check", "--config", str(file)]) == 2
    printed = capsys.readouterr()
    assert answer in printed.err
    assert str(file) in printed.err
    assert printed.out == ""


def test_settings_without_effect_are_warnings_and_no_error(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(file.read_text() + '[restart]\nmode = "act"\n')
    assert main(["config", "check", "--config", str(file)]) == 0
    first, warning = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{file}: valid, 1 warning; ")
    assert warning.startswith('Warning: restart.mode = "act" has no effect')
    assert main(["config", "check", "--json", "--config", str(file)]) == 0
    assert json.loads(capsys.readouterr().out)["warnings"] == [warning.removeprefix("Warning: ")]


@pytest.mark.parametrize("action", ["check", "show"])
def test_the_file_may_be_named_without_its_option(file: Path, action: str, capsys: pytest.CaptureFixture[str]) -> None:
    printed = []
    for words in (["--config", str(file)], [str(file)]):
        assert main(["config", action, *words, "--json"]) == 0
        printed.append(json.loads(capsys.readouterr().out))
    assert printed[0] == printed[1]
    assert printed[0]["source"] == str(file)
    assert main(["config", action, str(file), "--config", str(file)]) == 2


@pytest.mark.parametrize("command", [["config", "check"], ["config", "show"], ["run"], ["status"]])
def test_one_that_others_can_change_is_refused_by_each_command(
    file: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    file.chmod(0o666)
    assert main([*command, "--config", str(file)]) == 2
    assert f"{file} can be changed by everybody" in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["", '"/bin/sh", "-e", '])
def test_a_command_that_others_can_change_is_refused(
    file: Path, shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    program = file.parent / "checkpoint"
    program.touch(0o755)
    command = f'[{shell}"{program}", "--now", "/tmp", "/dev/null"]'
    file.write_text(f'[restart]\nmode = "act"\ncheckpoint = true\ncheckpoint_command = {command}\n')
    assert main(["config", "check", "--config", str(file)]) == 0
    program.chmod(0o777)
    assert main(["config", "check", "--config", str(file)]) == 2
    error = capsys.readouterr().err
    assert "restart.checkpoint_command" in error
    assert f"{program} can be changed by everybody" in error


def test_rules_that_others_can_change_are_refused(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = file.parent / "rules"
    rules.chmod(0o777)
    assert main(["config", "check", "--json", "--config", str(file)]) == 1
    (refused,) = json.loads(capsys.readouterr().out)["refused"]
    assert f"{rules} can be changed by everybody" in refused


def test_no_terminal_obeys_a_rules_own_words(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file.parent / "rules" / "own.toml").write_text('[[rule]]\nid = "a\\u001b]52;c;eA==\\u0007"\nsummary = "s"\n')
    (file.parent / "rules" / "b\x1b[2J.toml").write_text("no TOML")
    assert main(["config", "check", "--config", str(file)]) == 1
    assert all(line.isprintable() for line in capsys.readouterr().out.splitlines())


def test_no_terminal_obeys_an_error(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text('[logs]\n"a\\u001b[2Jb" = 1\n[http]\nlisten = "x"\n')
    assert main(["config", "check", "--config", str(file)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2  # each problem keeps its line
    assert all(line.isprintable() for line in lines)
