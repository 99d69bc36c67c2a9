"""Each command that a document shows is one, with options that it has."""

from __future__ import annotations

import pytest

from tests.standins.documented_commands import documented_commands
from tpuwatch.cli import main, restarts

COMMANDS = documented_commands()


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_documented_command_exists_with_its_options(words: tuple[str, ...]) -> None:
    if len(words) == 1:  # named, without its arguments
        assert words[0] in main.COMMANDS
        return
    given = ["restarts", *restarts.with_action(words[1:])] if words[0] == "restarts" else list(words)
    parser = main._parser(given)
    try:
        parser.parse_args(given)
    except main._UsageError as error:
        pytest.fail(f"{COMMANDS[words]} shows `tpuwatch {' '.join(words)}`: {error}")


def test_the_commands_are_found() -> None:
    assert len(COMMANDS) > 60
    for words in [("restart", "train-1", "--dry-run"), ("nodes", "--problems"), ("tune", "--explain")]:
        assert words in COMMANDS
