"""`tpuwatch advise` where nothing is compiled: shapes, reports, sources, and what is given wrongly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.advise.test_advise import REPORT
from tpuwatch.cli.main import main


def test_shapes_as_text_json_and_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "advice.html"
    words = ["advise", "--shape", "bf16[20,30,5]", "--tpu", "v6e-4", "--html", str(page)]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "padding (HBM" in shown
    assert "bf16[20,30,5]  asked-for" in shown
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert main([*words, "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    (tensor,) = result["tensors"]
    assert (tensor["bytes"], tensor["padded_bytes_as_written"]) == (6000, 20 * 32 * 128 * 2)
    assert result["findings"][0]["source"]["url"].startswith("https://docs.cloud.google.com/tpu/")


def test_a_log_with_a_report_of_too_little_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "job.log"
    log.write_text(REPORT, encoding="utf-8")
    assert main(["advise", str(log)]) == 0
    assert "2.19 GiB take 28 GiB, 12.8 times as much" in capsys.readouterr().out


def test_a_source_alone_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "input.py"
    source.write_text("import tensorflow as tf\ntf.data.Dataset.from_generator(f, s)\n", encoding="utf-8")
    assert main(["advise", "--source", str(source)]) == 0
    assert f"{source}, line 2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "a source file (--source) or a profile (--profile)"),
        (["train:step"], "--tpu: say for which TPU, such as --tpu v6e-4"),
        (["none.log"], "none.log: No such file or directory"),
        (["--shape", "8x128"], "'8x128' is no shape: give it as f32[8,128]"),
        (["--shape", "f32[8]", "--tpu", "gpu"], "is no TPU that is known"),
        (["--source", "none.py"], "--source none.py: no such file"),
        (["--profile", "none"], "none: there is no such file or directory"),
        (["--shape", "f32[8]", "--profile-python", "python3"], "--profile-python reads a profile"),
        (["--shape", "f32[8]", "--html", "none/page.html"], "--html none/page.html: there is no such directory"),
    ],
)
def test_what_is_given_wrongly(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["advise", *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("train.py", "import jax\ndef f(:\n", "line 2: "),
        ("train.ipynb", '{"cells": [], "nbformat": 4}', "jupyter nbconvert --to script"),
        ("train.py", "\0", "null bytes"),
    ],
)
def test_a_source_that_cannot_be_read_is_refused(
    name: str, text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(text)
    assert main(["advise", "--source", str(tmp_path / name)]) == 2
    assert said in capsys.readouterr().err


def test_a_source_for_which_no_rule_is_made_is_no_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "train.py"
    source.write_text("import torch_xla.core.xla_model as xm\nxm.mark_step()\n")
    assert main(["advise", "--source", str(source), "--json"]) == 3
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert result["checked"] == []
    assert any("torch_xla" in one["reason"] for one in result["not_checked"])


def test_source_code_in_the_place_of_a_log_is_told_where_to_go(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "train.py"
    source.write_text("import jax\n")
    assert main(["advise", str(source)]) == 2
    assert f"--source {source}" in capsys.readouterr().err


def test_a_log_without_a_report_says_what_else_reads_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "job.log"
    log.write_text("all is well\n", encoding="utf-8")
    assert main(["advise", str(log)]) == 2
    assert "tpuwatch diagnose" in capsys.readouterr().err
