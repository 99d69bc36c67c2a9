"""The line that a user is shown is one of his."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.program.front.errors import StopError
from tpuwatch.program.front.place import users_line

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_the_users_line_is_that_of_the_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    program = compile("\n\nraise KeyError(7)", str(tmp_path / "train.py"), "exec")
    try:
        try:
            exec(program)  # noqa: S102 (it is this text)
        except KeyError as error:
            raise StopError("program", "in other words") from error
    except StopError:
        assert users_line() == {"file": str(tmp_path / "train.py"), "line": 3}
