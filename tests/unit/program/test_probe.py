"""A probe against a stand-in for the framework: a program that plays its stages."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.standins.machine import Machine
from tpuwatch.core import ConfigError
from tpuwatch.model import ProbeVerdict
from tpuwatch.program import ChildLimits, ProbeRequest, ProbeResult, run_probe
from tpuwatch.program.attempt import CHILD, attempt
from tpuwatch.program.probe import LOCK, ProbeBusyError, changeable_by_others

HEAD = """
import json, os, signal, subprocess, sys
request = json.loads(sys.argv[1])
tpu = request["platform"] == "tpu"
out = os.fdopen(request["report"], "w", buffering=1)
def report(**message): out.write(json.dumps(message) + "\\n")
def stages(*names):
    for name in names: report(stage=name)
def fail(kind, message): report(error=dict(kind=kind, stage="x", message=message)); sys.exit(1)
def well(*results):
    stages("import", "initialise"); report(fact=dict(framework="jax", devices=["TPU_0", "TPU_1"], files=[]))
    stages("compile", "compute")
    if request["step"]: stages("step"); report(fact=dict(results=list(results)))
    report(done=True); sys.exit(0)
def result(*values, place="result"): return dict(place=place, type="float32", shape=[len(values)], values=values)
if not tpu and not request["step"]: well()
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the child more often than an operator needs."""
    monkeypatch.setattr("tpuwatch.program.child._LOOK_SECONDS", 0.01)


class FakeClock:
    """A clock that stands still but in one stage on the TPU, where it goes on each time it is read."""

    def __init__(self, stage: str, by: float = 1.0) -> None:
        self.now = 0.0
        self._at = f"tpu: {stage}"
        self._by = by
        self._runs = False

    def on_stage(self, stage: str) -> None:
        self._runs = stage == self._at

    def monotonic(self) -> float:
        self.now += self._by if self._runs else 0.0
        return self.now


def probed(
    directory: Path,
    script: str,
    *,
    devices: bool = True,
    step: str | None = None,
    clock: Any = None,
    head: str = HEAD,
    **more: Any,
) -> ProbeResult:
    """Probe a made-up machine, with or without a TPU, by a child that runs `script`."""
    machine = Machine(directory / "root")
    if devices:
        machine.write("dev/accel0", "")
    child = directory / "child.py"
    child.write_text(head + script)
    return run_probe(
        ProbeRequest((sys.executable, str(child)), step=step, **more),
        limits=ChildLimits(30.0, 1 << 34),
        environ={"PATH": os.environ["PATH"]},
        on_stage=clock.on_stage if clock is not None else lambda _: None,
        directory=directory,
        root=directory / "root",
        clock=clock,
    )


def test_a_tpu_that_computes_right_works_and_the_cpu_is_not_asked(tmp_path: Path) -> None:
    result = probed(tmp_path, "well()")
    assert (result.probe.verdict, result.scene.cpu) == (ProbeVerdict.WORKS, None)
    assert "each of its 2 devices computed the right value" in result.probe.summary
    assert [one.name for one in result.scene.tpu.stages] == ["start", "import", "initialise", "compile", "compute"]


@pytest.mark.parametrize(
    ("script", "devices", "verdict", "words"),
    [
        ("stages('import'); fail('interpreter', 'no JAX')", True, "inconclusive", "no JAX"),
        ("fail('wrong_build', 'No OpKernel was registered')", True, "wrong_build", "healthy"),
        ("stages('import', 'initialise'); fail('error', 'not found')", False, "no_tpu", "/dev/accel*"),
        ("stages('import', 'initialise'); fail('absent', 'no TPU')", True, "stack_fault", "/dev/accel0"),
        ("stages('import', 'initialise'); fail('error', 'INTERNAL: reset')", True, "tpu_fault", "INTERNAL: reset"),
        ("stages('import', 'compute'); fail('value', '3 of 256 wrong')", True, "tpu_fault", "3 of 256 wrong"),
        ("stages('import', 'compile'); fail('error', 'bad pass')", True, "stack_fault", "runs on the host"),
        ("stages('import', 'initialise'); os.abort()", True, "tpu_fault", "SIGABRT"),
        ("stages('import'); os.kill(os.getpid(), signal.SIGSEGV)", True, "stack_fault", "SIGSEGV"),
        ("stages('import'); sys.exit(1)", True, "stack_fault", "exit status 1"),
        ("stages('import', 'compute'); out.write('garbage\\n'); signal.pause()", True, "stack_fault", "no report"),
        ("stages('import', 'compute'); report(done='yes'); signal.pause()", True, "stack_fault", "no report"),
        (
            "stages('import', 'initialise'); print('E1123 10:00:00.000001 4711 a.cc:1] The TPU is already in use by "
            "process with pid 7.', file=sys.stderr); fail('error', 'in use')",
            True,
            "inconclusive",
            "is held",
        ),
    ],
)  # fmt: skip
def test_where_it_fails_says_who_is_at_fault(
    tmp_path: Path, script: str, devices: bool, verdict: str, words: str
) -> None:
    result = probed(tmp_path, script, devices=devices)
    assert result.probe.verdict.value == verdict, result.probe.summary
    assert words in result.probe.summary
    assert result.blame.remedy


def test_what_fails_on_the_cpu_too_is_no_fault_of_the_tpu(tmp_path: Path) -> None:
    result = probed(
        tmp_path, "stages('import', 'initialise'); fail('error', 'broken')", head=HEAD.rpartition("if not")[0]
    )
    assert result.probe.verdict is ProbeVerdict.STACK_FAULT
    assert "fails on the CPU too" in result.probe.summary


@pytest.mark.parametrize("hang", ["signal.pause()", "os.kill(os.getpid(), signal.SIGSTOP)"], ids=["waits", "stopped"])
def test_a_stage_that_hangs_is_ended_at_its_deadline(tmp_path: Path, hang: str) -> None:
    result = probed(tmp_path, f"stages('import', 'initialise'); {hang}", clock=FakeClock("initialise"))
    assert result.probe.verdict is ProbeVerdict.TPU_FAULT
    assert "longer than 30 s (--timeout)" in result.probe.summary
    assert result.scene.tpu.ended


def test_on_a_node_of_several_hosts_one_that_waits_proves_nothing(tmp_path: Path) -> None:
    result = probed(tmp_path, "stages('import', 'initialise'); signal.pause()", clock=FakeClock("initialise"), hosts=4)
    assert result.probe.verdict is ProbeVerdict.INCONCLUSIVE
    assert "4 hosts" in result.probe.summary


def test_a_machine_that_is_too_busy_proves_nothing(tmp_path: Path) -> None:
    result = probed(tmp_path, "stages('import', 'initialise'); signal.pause()", clock=FakeClock("initialise", 9.0))
    assert result.probe.verdict is ProbeVerdict.INCONCLUSIVE
    assert "too busy" in result.probe.objection


def pressure(root: Path, seconds: float) -> None:
    """The kernel has counted so many seconds of waits for disks since boot, and none for memory."""
    for name, total in (("io", seconds), ("memory", 0.0)):
        Machine(root).write(
            f"proc/pressure/{name}", f"some avg10=0.00 avg60=0.00 avg300=0.00 total={total * 1e6:.0f}\n"
        )


@pytest.mark.parametrize(("waited", "words"), [(None, "does not count waits"), (0.0, ""), (1e6, "waited for disks")])
def test_what_was_not_done_in_time_is_evidence_where_nothing_else_kept_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waited: float | None, words: str
) -> None:
    monkeypatch.setattr("tpuwatch.program.probe.changeable_by_others", lambda _: "")  # the tests' own interpreter
    root = tmp_path / "root"
    clock = FakeClock("initialise")
    if waited is not None:
        pressure(root, 1.0)
        seen = clock.on_stage
        monkeypatch.setattr(clock, "on_stage", lambda stage: (seen(stage), pressure(root, 1.0 + waited)))
    result = probed(tmp_path, "stages('import', 'initialise'); signal.pause()", clock=clock)
    assert result.probe.verdict is ProbeVerdict.TPU_FAULT
    assert (words in result.probe.objection) if words else (result.probe.objection == "")


HALT = (
    "E1123 10:00:00.000001 4711 tpu_hal.cc:1] Core halted unexpectedly: INTERNAL: Accelerator device halted prematurely"
)


def test_an_error_is_evidence_where_the_runtime_says_that_it_is_the_tpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tpuwatch.program.probe.changeable_by_others", lambda _: "")
    fails = "stages('import', 'compute'); fail('error', 'INTERNAL')"
    assert "not known to be the TPU's own" in probed(tmp_path, fails).probe.objection
    result = probed(tmp_path, f"print({HALT!r}); {fails}")
    assert [one.cause.value for one in result.scene.tpu.findings] == ["core_halted"]
    assert (result.probe.verdict, result.probe.objection) == (ProbeVerdict.TPU_FAULT, "")


def test_the_import_has_a_deadline_of_its_own(tmp_path: Path) -> None:
    result = probed(tmp_path, "stages('import'); signal.pause()", clock=FakeClock("import"))
    assert result.probe.verdict is ProbeVerdict.STACK_FAULT
    assert "longer than 120 s" in result.probe.summary


def test_a_grandchild_that_holds_the_pipe_delays_nothing_and_is_ended(tmp_path: Path) -> None:
    script = (
        "p = subprocess.Popen(['sleep', '1000'], pass_fds=(request['report'],))\n"
        "open(os.path.dirname(__file__) + '/pid', 'w').write(str(p.pid))\nwell()"
    )
    result = probed(tmp_path, script)
    assert result.probe.verdict is ProbeVerdict.WORKS
    with suppress(ProcessLookupError):
        grandchild = os.pidfd_open(int((tmp_path / "pid").read_text()))
        assert select.select([grandchild], [], [], 30.0)[0]  # it ends, when the kernel comes to it
        os.close(grandchild)


def test_a_flood_of_output_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpuwatch.program.child.MAX_OUTPUT", 1 << 20)
    result = probed(tmp_path, "stages('import', 'compute')\nwhile True: os.write(1, b'words\\n' * 1000)")
    assert result.probe.verdict is ProbeVerdict.STACK_FAULT
    assert "printed more than" in result.probe.summary


def test_ctrl_c_in_mid_stage_leaves_no_process(tmp_path: Path) -> None:
    pids: list[int] = []

    def interrupt(_: str) -> None:
        if (tmp_path / "pid").exists():
            pids.append(int((tmp_path / "pid").read_text()))
            raise KeyboardInterrupt

    machine = Machine(tmp_path / "root")
    child = tmp_path / "child.py"
    script = "open(os.path.dirname(__file__) + '/new', 'w').write(str(os.getpid()))\n"
    script += "os.rename(os.path.dirname(__file__) + '/new', os.path.dirname(__file__) + '/pid')\nsignal.pause()"
    child.write_text(HEAD + script)
    with pytest.raises(KeyboardInterrupt):
        run_probe(
            ProbeRequest((sys.executable, str(child))),
            limits=ChildLimits(60.0, 1 << 34),
            environ={},
            on_stage=interrupt,
            directory=tmp_path,
            root=machine.root,
        )
    assert not Path(f"/proc/{pids[0]}").exists()


def test_there_is_one_probe_at_a_time_even_of_a_child_that_outlives_its_probe(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        ["/bin/sleep", "1000"], pass_fds=(lock := os.open(tmp_path / LOCK, os.O_RDWR | os.O_CREAT),)
    )
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.close(lock)  # only the other process has it now, as a child that cannot be ended has
    try:
        with pytest.raises(ProbeBusyError, match="another probe runs, or could not be ended"):
            probed(tmp_path, "well()")
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    assert probed(tmp_path, "well()").probe.verdict is ProbeVerdict.WORKS


def test_a_tpu_that_is_held_is_left_alone_unless_asked_to(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "root")
    machine.process(700, files=("/dev/accel0",))
    with pytest.raises(ProbeBusyError, match=r"Process 700 .* holds the TPU; .*--while-held"):
        probed(tmp_path, "well()")
    assert probed(tmp_path, "well()", while_held=True).probe.verdict is ProbeVerdict.WORKS
    result = probed(tmp_path, "stages('import', 'initialise'); fail('error', 'busy')", while_held=True)
    assert result.probe.verdict is ProbeVerdict.INCONCLUSIVE
    assert "Process 700" in result.probe.objection


def test_a_step_that_gives_the_same_on_both_is_no_fault(tmp_path: Path) -> None:
    script = "well(result(1.0, 100.0 if tpu else 101.0), result('nan', place='x'))"
    result = probed(tmp_path, script, step="model:step")
    assert result.probe.verdict is ProbeVerdict.WORKS, result.probe.summary
    assert "same results" in result.probe.summary


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("well(result(1.0, 90.0 if tpu else 100.0))", "is 90 on the TPU and 100 on the CPU"),
        ("well(result('nan' if tpu else 2.0))", "is nan on the TPU and 2 on the CPU"),
        ("well(result(1.0) if tpu else result(1.0, 2.0))", "has the shape [1] on the TPU and [2] on the CPU"),
        ("well(result(1.0), result(2.0, place='x')) if tpu else well(result(1.0))", "on the TPU alone"),
        ("stages('import', 'compute', 'step'); fail('error', 'KeyError: 7')", "on the TPU and on the CPU alike"),
        (
            "well(result(1.0)) if not tpu else (stages('import', 'compute', 'step'), signal.pause())",
            "on the TPU, and not on the CPU",
        ),
    ],
)
def test_a_step_that_fails_or_differs_is_the_programs(tmp_path: Path, script: str, words: str) -> None:
    clock = FakeClock("step") if "pause" in script else None
    result = probed(tmp_path, script, step="model:step", clock=clock)
    assert result.probe.verdict is ProbeVerdict.PROGRAM_FAULT, result.probe.summary
    assert words in result.probe.summary


def test_a_step_that_is_none_is_wrong_use(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no module"):
        probed(tmp_path, "stages('import', 'compute', 'step'); fail('usage', '--step: no module')", step="none:none")


def test_what_others_could_have_changed_is_no_evidence(tmp_path: Path) -> None:
    own = tmp_path / "lib" / "jax.py"
    own.parent.mkdir(mode=0o755)
    own.touch(0o644)
    assert changeable_by_others([str(own)]) == ""
    own.parent.chmod(0o777)
    assert changeable_by_others([str(own)]) == str(own.parent)
    own.parent.chmod(0o1777)
    assert changeable_by_others([str(own)]) == "", "nobody touches another's files there"
    link = tmp_path / "link"
    link.symlink_to(own)
    assert changeable_by_others([str(link)]) == ""
    own.chmod(0o666)
    assert changeable_by_others([str(link)]) == str(own)
    assert changeable_by_others([str(tmp_path / "none")]) != ""


@pytest.mark.parametrize(
    ("modules", "kind", "words"),
    [
        (
            {"torch.py": "__version__ = '2.13.0+cpu'\n"},
            "wrong_build",
            "PyTorch 2.13.0+cpu is installed without torch_xla",
        ),
        ({"torch.py": "__version__ = '2.13.0'\n", "torchax.py": ""}, "interpreter", "--framework jax"),
        ({"torch.py": "__version__ = '2.13.0'\n", "torch_xla.py": "import _XLAC\n"}, "error", "_XLAC"),
        ({"torch.py": "import sympy_of_none\n", "torch_xla.py": ""}, "error", "sympy_of_none"),
        ({"torch_xla.py": ""}, "interpreter", "cannot import torch"),
    ],
)
def test_what_an_interpreter_with_pytorch_lacks(tmp_path: Path, modules: dict[str, str], kind: str, words: str) -> None:
    for name, text in modules.items():
        (tmp_path / name).write_text(text)
    done = attempt(
        "tpu",
        command=[sys.executable, str(CHILD)],
        framework=None,
        step=None,
        limits=ChildLimits(30.0, 1 << 34),
        environ={"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path)},
        on_stage=lambda _: None,
    )
    assert (done.facts["framework"], done.kind, done.stage) == ("torch", kind, "import")
    assert done.problem is not None
    assert words in done.problem["message"]
