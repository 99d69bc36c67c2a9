"""`tpuwatch tune`: what it writes, forgets and removes, and what it refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.daemon_process import ROOT
from tests.unit.cli.tuning import GIB, GROWS, SETTLED, Machine, flat, launch, machine
from tests.unit.store.make import NOW
from tpuwatch.launches.exec_records import make_drop_box
from tpuwatch.model.tune import SIZE
from tpuwatch.tune.plan import read_plan, read_resets, write_reset
from tpuwatch.tune.planner import launches_by_workload

__all__ = ["machine"]  # a fixture


def environment(path: Path) -> dict[str, str]:
    """The variables of an environment file."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    return {name: value.strip('"') for name, _, value in (line.partition("=") for line in lines)}


def test_apply_writes_the_plan_and_the_environment_file(machine: Machine) -> None:
    machine.store(*GROWS)
    code, out, err = machine.run("--apply")
    assert (code, err) == (0, "")
    plans = machine.own / "plans"
    assert f"Wrote {plans}/train.json\nWrote {plans}/train.env\n" in out
    assert f"A service gets it with EnvironmentFile=-{plans}/train.env\n" in out
    plan = read_plan(machine.own, "train")
    assert plan is not None
    assert plan.decision.size_bytes == 23 * GIB // 4
    assert environment(plans / "train.env")[SIZE] == str(23 * GIB // 4)
    assert {path.stat().st_mode & 0o777 for path in plans.iterdir()} == {0o644}
    (workload,) = machine.json()["workloads"]
    assert workload["stored"]["same"] is True
    assert "--apply" not in machine.run()[1]


def test_a_plan_that_is_out_of_date_is_reported(machine: Machine) -> None:
    machine.store(*GROWS)
    machine.run("--apply")
    machine.configure('memory_percent = 90\noverrides = {TPU_PREMAPPED_BUFFER_SIZE = "8589934592"}')
    out = machine.run()[1]
    assert out.startswith("train: overridden with 8 GiB\n")
    assert "gives other values: --apply writes this one." in flat(out)
    assert machine.json()["workloads"][0]["stored"]["same"] is False


def test_a_plan_that_is_damaged_is_reported_and_replaced(machine: Machine) -> None:
    machine.store(*GROWS)
    machine.run("--apply")
    (machine.own / "plans" / "train.json").write_text("{")
    code, out, _ = machine.run()
    assert code == 0
    assert f"{machine.own}/plans/train.json is no plan that can be used" in flat(out)
    assert "--apply writes it again." in flat(out)
    machine.run("--apply")
    assert read_plan(machine.own, "train") is not None


@pytest.mark.parametrize("words", [["--dry-run"], ["--apply", "--dry-run"]], ids=["alone", "with --apply"])
def test_a_dry_run_shows_what_would_be_written_and_changes_nothing(machine: Machine, words: list[str]) -> None:
    machine.store(*GROWS)
    code, out, _ = machine.run(*words)
    assert code == 0
    assert f"Would write {machine.own}/plans/train.json\n" in out
    assert f'   {SIZE}="{23 * GIB // 4}"\n' in out
    assert not machine.own.exists()
    document = machine.json(*words)
    assert document["written"] == []
    assert document["would_write"] == [f"{machine.own}/plans/train.json", f"{machine.own}/plans/train.env"]


def test_where_a_daemon_takes_records_its_directory_is_written(machine: Machine) -> None:
    machine.store(*GROWS)
    make_drop_box(machine.state / "tune")
    out = machine.run()[1]
    assert 'mode under [tune] is "observe": the daemon writes plans' in out
    document = machine.json("--apply")
    assert document["written"] == [f"{machine.state}/tune/plans/train.{kind}" for kind in ("json", "env")]


def test_a_reset_forgets_what_was_launched_before_it(machine: Machine) -> None:
    machine.store(*SETTLED, launch(9, 4 * GIB, 9.0, "eval"))
    machine.run("--apply")
    mark = machine.own / "plans" / "train.reset"
    code, out, _ = machine.run("--reset", "--workload", "train", "--dry-run")
    assert code == 0
    assert f"Would forget 3 launches of train: {mark}\n" in out
    assert not mark.exists()
    assert environment(mark.with_suffix(".env"))[SIZE] == str(6 * GIB)

    code, out, _ = machine.run("--reset", "--workload", "train")
    assert code == 0
    assert f"Forgot 3 launches of train: {mark}\n" in out
    assert SIZE not in environment(mark.with_suffix(".env"))  # what stood there is not given any more
    assert out.startswith("train: start with libtpu's own 4 GiB\n")
    out = machine.run("--explain")[1]
    assert "is forgotten (--reset)" in flat(out)
    assert "eval: keep" in out
    assert "Forgot no launch of train" in machine.run("--reset", "--workload", "train")[1]


def test_a_reset_writes_no_plan_where_none_was(machine: Machine) -> None:
    machine.store(*GROWS)
    machine.run("--reset", "--workload", "train")
    assert [path.name for path in (machine.own / "plans").iterdir()] == ["train.reset"]


def test_a_reset_of_what_is_not_known_is_a_mistake(machine: Machine) -> None:
    machine.store(*GROWS)
    code, out, err = machine.run("--reset", "--workload", "trian")
    assert (code, out) == (3, "")
    assert "no launch of trian is known that could be forgotten; there are train" in err
    assert not machine.own.exists()


def test_what_is_launched_after_a_reset_counts(tmp_path: Path) -> None:
    write_reset(tmp_path, "train", NOW + 3600 + 1)
    (tmp_path / "plans" / "eval.reset").write_text("nan")
    (tmp_path / "plans" / "probe.reset").write_text("soon")
    (tmp_path / "plans" / f"{'x' * 80}.reset").write_text("1")
    resets = read_resets(tmp_path)
    assert resets == {"train": NOW + 3601}
    found = launches_by_workload([*SETTLED, launch(0, GIB, 9.0, "eval")], resets)
    assert {name: [one.started for one in several] for name, several in found.items()} == {
        "eval": [NOW],
        "train": [NOW + 7200],
    }
    assert read_resets(tmp_path / "none") == {}


@pytest.mark.slow
def test_a_picture(machine: Machine) -> None:
    machine.store(*SETTLED)
    picture = machine.root / "fit.png"
    code, out, _ = machine.run("--plot", str(picture))
    assert code == 0
    assert f"Wrote {picture}\n" in out
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_picture_of_nothing_and_of_two(machine: Machine) -> None:
    picture = machine.root / "fit.png"
    code, _, err = machine.run("--plot", str(picture))
    assert code == 3
    assert "there is nothing to draw: no launch of default has both a size and a time" in err
    machine.store(*SETTLED, launch(9, 4 * GIB, 9.0, "eval"))
    code, _, err = machine.run("--plot", str(picture))
    assert code == 2
    assert "name it with --workload; there are train, eval" in err
    assert not picture.exists()


def old_log(machine: Machine, pid: int) -> Path:
    """A log file of libtpu that was last written in 2001, by a process that is no more."""
    logs = machine.root / "logs"
    logs.mkdir(exist_ok=True)
    path = logs / f"tpu_driver.{os.uname().nodename}.user.log.INFO.20010909-014640.{pid}"
    path.write_text("x" * 5000)
    os.utime(path, (1e9, 1e9))
    return path


def test_old_logs_are_pruned_and_open_ones_are_spared(machine: Machine) -> None:
    gone, held = old_log(machine, 2**22 + 1), old_log(machine, 2**22 + 2)
    with held.open("a"):
        code, out, _ = machine.run("--prune-logs", "--dry-run")
        assert (code, gone.exists()) == (0, True)
        assert f"would remove  2001-09-09 01:46:40 UTC       8 KiB  {gone}\n" in out
        code, out, _ = machine.run("--prune-logs")
        assert (code, gone.exists(), held.exists()) == (0, False, True)
        assert f"spared {held}: a process has it open for writing" in flat(out)
        document = machine.json("--prune-logs")
    assert document["removed"] == []
    assert [(old["path"], old["spared"]) for old in document["spared"]] == [
        (str(held), "a process has it open for writing")
    ]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--workload", "a/b"], "'a/b' cannot be a workload's name"),
        (["--workload", ""], "'' cannot be a workload's name"),
        (["--plot", "fit.pdf"], "let its name end in .png"),
        (["--reset"], "--reset forgets: name what, with --workload NAME"),
        (["--prune-logs", "--explain"], "give it alone, or with --dry-run"),
        (["--apply", "--reset", "--workload", "a"], "not allowed with argument"),
        (["train"], "'train' is one word too many"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_use(machine: Machine, words: list[str], expected: str) -> None:
    code, out, err = machine.run(*words)
    assert (code, out) == (2, "")
    assert expected in err


AS_NOBODY = """
import contextlib, io, os, sys
from tpuwatch.cli.main import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    "".encode("idna")
    main(["tune", "--json", *sys.argv[1:3]])  # imports all while the interpreter's own files can be read
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
sys.exit(main(["tune", *sys.argv[1:]]))
"""


def as_nobody(machine: Machine, *words: str) -> tuple[int, str, str]:
    """`tpuwatch tune` as a user who may read nothing of root's."""
    machine.config.chmod(0o644)
    command = [sys.executable, "-c", AS_NOBODY, "--config", str(machine.config), *words]
    environ = {**os.environ, "HOME": str(machine.root / "nobody"), "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
@pytest.mark.usefixtures("machine")
def test_who_may_read_no_store_sees_the_plans_that_stand(
    open_place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = Machine(open_place, capsys)
    monkeypatch.setenv("TPUWATCH_CONFIG", str(machine.config))
    machine.store(*GROWS)
    make_drop_box(machine.state / "tune")
    machine.state.chmod(0o711)
    (machine.state / "tune").chmod(0o755)
    code, out, err = as_nobody(machine, "--json")
    assert (code, json.loads(out)["exit_code"]) == (3, 3)
    assert err.startswith("tpuwatch: this user may not read the store")
    assert "no daemon answers either; run it with sudo" in err
    machine.run("--apply")
    code, out, _ = as_nobody(machine, "--json")
    assert code == 0
    document = json.loads(out)
    assert document["source"]["kind"] == "plans"
    (workload,) = document["workloads"]
    assert (workload["workload"], workload["size_bytes"]) == ("train", 23 * GIB // 4)
    out = as_nobody(machine, "--explain")[1]
    assert "These are the plans on disk: this user may not read the store" in flat(out)
    assert "They cannot be read here." in out
    code, out, err = as_nobody(machine, "--apply")
    assert (code, out) == (3, "")
    assert f"you may not write into {machine.state}/tune/plans: run the same command with sudo" in err
