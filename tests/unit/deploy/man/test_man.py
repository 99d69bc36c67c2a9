"""The man page."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from deploy.man.__main__ import page
from tests.paths import ROOT
from tpuwatch.cli.main import COMMANDS

FILE = ROOT / "deploy/man/tpuwatch.1"


def shown(width: int = 80) -> str:
    """The page as man shows it. Any warning of groff fails."""
    groff = shutil.which("groff")
    if groff is None:
        pytest.skip("groff is not installed")
    command = (groff, "-man", "-ww", "-Tutf8", "-P-cbou", f"-rLL={width}n", str(FILE))
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    return done.stdout


def test_the_file_is_what_the_parsers_say() -> None:
    assert FILE.read_text() == page(), "make man"


def test_each_command_and_what_is_special_to_the_format_is_shown() -> None:
    text = shown()
    assert [name for name in COMMANDS if not re.search(rf"^   {name}$", text, re.MULTILINE)] == []
    assert re.search(r"^   tpuwatch config check$", text, re.MULTILINE)
    words = " ".join(text.split())
    for part in (
        "--redact-project Take the ids",
        "tpuwatch exec [OPTION ...]",
        "[FILE ...]",
        "--tpu TYPE",
        "130 Ended by",
    ):
        assert part in words
    assert "`" not in text
    assert "%(" not in text


def test_it_fits_the_width() -> None:
    assert [line for line in shown(80).splitlines() if len(line) > 80] == []
