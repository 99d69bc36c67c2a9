"""`tpuwatch completion`, by the shells themselves."""

from __future__ import annotations

import contextlib
import io
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tpuwatch.cli.main import COMMANDS, main


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is printed for bash."""
    file = tmp_path_factory.mktemp("completion") / "tpuwatch.bash"
    file.write_text(printed("bash"))
    return file


def printed(shell: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as output:
        assert main(["completion", shell]) == 0
    return output.getvalue()


def completed(script: Path, *words: str, here: Path | None = None) -> set[str]:
    """What bash offers for the last of these words."""
    line = f"""
        source {shlex.quote(str(script))}
        COMP_WORDS=({shlex.join(("tpuwatch", *words))}) COMP_CWORD={len(words)}
        function=$(complete -p tpuwatch | sed 's/.* -F \\([^ ]*\\) .*/\\1/')
        $function
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["/bin/bash", "-c", line], cwd=here, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return set(done.stdout.split())


def test_all_commands_are_offered(script: Path) -> None:
    assert completed(script, "") >= set(COMMANDS)
    assert completed(script, "rest") == {"restart", "restarts"}


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("nodes", "--"), {"--problems", "--watch", "--output", "--json", "--config"}),
        (("nodes", "--output", ""), {"wide", "name", "json"}),
        (("env", "--format", "s"), {"shell", "systemd"}),
        (("restarts", ""), {"show", "history", "cancel", "reset-breaker"}),
        (("restarts", "history", "--z"), {"--zone"}),
        (("config", ""), {"check", "show"}),
        (("restart", "--force-action", ""), {"restart_node", "reset_queued_resource"}),
        (("completion", ""), {"bash", "zsh"}),
    ],
)
def test_options_actions_and_values_are_offered(script: Path, words: tuple[str, ...], offered: set[str]) -> None:
    assert completed(script, *words) >= offered


def test_the_name_of_a_file_is_completed(script: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").touch()
    assert completed(script, "status", "--config", "mi", here=tmp_path) == {"mine.toml"}


def test_zsh_takes_its_script(tmp_path: Path) -> None:
    zsh = shutil.which("zsh")
    if zsh is None:
        pytest.skip("zsh is not there")
    (tmp_path / "_tpuwatch").write_text(printed("zsh"))
    subprocess.run([zsh, "-n", str(tmp_path / "_tpuwatch")], check=True)


def test_what_is_for_zsh_says_so_and_has_all_commands() -> None:
    text = printed("zsh")
    assert text.startswith("#compdef tpuwatch\n")
    assert [name for name in COMMANDS if f"    {name}:" not in text] == []


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "fish"]) == 2
    assert "there is no 'fish'" in capsys.readouterr().err
