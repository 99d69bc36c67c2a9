"""Each example of docs/launchers.md is one that its tool can read, and each command of tpuwatch in it is checked."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from itertools import chain
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.paths import ROOT
from tests.standins.documented_commands import commands_in, documented_commands, launched
from tests.unit.whole_text import findings_in
from tpuwatch.config import load_config
from tpuwatch.logs.parse.scan import Scanner
from tpuwatch.logs.rules.catalogue import load_catalogue
from tpuwatch.model import Cause

PAGE: Final = (ROOT / "docs" / "launchers.md").read_text(encoding="utf-8")
BLOCKS: Final = re.findall(r"^```(\w*)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
TRACEBACK: Final = """\
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    jax.devices()
RuntimeError: Unable to initialize backend 'tpu': ABORTED: The TPU is already in use by process with pid 4242.
"""


def blocks(kind: str) -> list[str]:
    return [block for name, block in BLOCKS if name == kind]


def test_every_example_is_of_a_kind_that_is_checked_here() -> None:
    assert {name for name, _ in BLOCKS} == {"sh", "yaml", "toml", "ini", "dockerfile", "python"}


@pytest.mark.parametrize("script", [*blocks("sh"), *re.findall(r"^RUN (.*)$", PAGE, re.MULTILINE)])
def test_a_shell_can_read_it(script: str) -> None:
    words = ["bash", "-n"]
    result = subprocess.run(words, input=script, capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stderr) == (0, "")


def test_yaml_has_what_its_launcher_runs() -> None:
    pod, sky, dstack = [yaml.safe_load(block) for block in blocks("yaml")]
    (container,) = pod["spec"]["containers"]
    volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    assert container["resources"]["requests"] == container["resources"]["limits"]
    commands = [" ".join(container["command"]), sky["run"].strip(), dstack["commands"][0]]
    assert all("tpuwatch exec --workload train -- python3 train.py" in command for command in commands)
    for script in [sky["setup"], sky["run"], *dstack["commands"]]:
        test_a_shell_can_read_it(script)


@pytest.mark.parametrize("text", blocks("toml"))
def test_tpuwatch_takes_the_configuration(text: str, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    assert load_config(file, {}).logs.job_paths


def test_python_can_read_it() -> None:
    for block in blocks("python"):
        ast.parse(block)


def test_an_image_is_made_by_instructions() -> None:
    (lines,) = blocks("dockerfile")
    assert [line.split()[0] for line in lines.splitlines()] == ["COPY", "RUN"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("text", blocks("ini"))
def test_systemd_accepts_the_unit(text: str, tmp_path: Path) -> None:
    def verify(more: str) -> tuple[int, str]:
        unit = tmp_path / Path(text.splitlines()[0].removeprefix("# ")).name
        unit.write_text(re.sub(r"(?<==)/usr/bin/\S+", "/bin/true", text).replace("[Install]", f"{more}\n[Install]"))
        words = ["systemd-analyze", "verify", "--recursive-errors=no", str(unit)]
        result = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        return result.returncode, result.stderr

    assert verify("") == (0, "")
    assert "Nonsense" in verify("Nonsense=1")[1]


def test_each_command_of_tpuwatch_that_starts_a_job_is_checked() -> None:
    shown = sum(len(re.findall(r"\btpuwatch\W+(?:exec|env)\b", block)) for _, block in BLOCKS)
    checked = list(chain.from_iterable(commands_in(line) for line in launched(PAGE)))
    assert len(checked) == shown > 10
    assert set(checked) <= set(documented_commands())


@pytest.mark.parametrize(
    ("prefix", "removed"),
    [
        ("Jan 02 03:04:05 host-0 python3[311]: ", True),  # journald
        ("2026-01-02T03:04:05.000000001Z ", True),  # docker logs --timestamps
        ("2026-01-02T03:04:05.000000001Z stderr F ", True),  # /var/log/pods
        ("[pod/train-0/train] ", True),  # kubectl logs --prefix
        ("3: ", True),  # srun --label
        ("(train pid=311, ip=10.0.0.2) ", True),  # Ray
        ('{"stream":"stderr","log":"', False),  # a program's own JSON
        ("2026-01-02T03:04:05+0000 host-0 python3[311]: ", True),  # journalctl --output=short-iso
        ("(worker1, rank=1, pid=311, ip=10.0.0.2) ", True),  # SkyPilot
    ],
)
def test_a_failure_is_found_behind_what_a_launcher_puts_before_it(prefix: str, removed: bool) -> None:
    text = "".join(prefix + line for line in TRACEBACK.splitlines(keepends=True))
    (finding,) = findings_in(text.encode(), Scanner(load_catalogue()), "job.log", 1_790_000_000.0)
    assert (finding.cause, finding.count) == (Cause.TPU_IN_USE, 1)
    assert finding.first.text.startswith("RuntimeError") is removed
