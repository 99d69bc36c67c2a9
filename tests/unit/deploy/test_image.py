"""The Dockerfile takes what is there, and what .dockerignore lets through."""

from __future__ import annotations

import re

from tests.paths import ROOT


def test_all_that_is_copied_is_there_and_let_through() -> None:
    lines = re.findall(r"^COPY (?!--from)(.*) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    copied = {name for line in lines for name in line.split()}
    assert {"tpuwatch", "systemd", "requirements.lock"} <= copied
    assert [name for name in copied if not (ROOT / name).exists()] == []
    assert set(re.findall(r"^!(.*)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)) == copied
