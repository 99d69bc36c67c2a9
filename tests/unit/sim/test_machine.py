from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tpuwatch.config import load_config
from tpuwatch.core.errors import TpuwatchError
from tpuwatch.sim import machine
from tpuwatch.sim.machine import SimulatedMachine, terminate
from tpuwatch.sim.scenario.actions import StartLaunch

SERVE = """
import functools, http.server, pathlib, sys, tomli
config = tomli.loads(pathlib.Path(sys.argv[-1]).read_text())
state = pathlib.Path(config["state"]["dir"])
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=state.parent)
server = http.server.HTTPServer(("127.0.0.1", 0), handler)
(state / "http.address").write_text("127.0.0.1:%d\\n" % server.server_port)
server.serve_forever()
"""


LAUNCH = {name: StartLaunch(do="launch", launch=name) for name in ("healthy", "premapped")}


def command(script: str) -> tuple[str, ...]:
    return (sys.executable, "-c", script)


def test_leaving_ends_every_process_and_removes_every_file() -> None:
    with SimulatedMachine(command=command(SERVE)) as vm:
        vm.start_daemon()
        launch = vm.simulator.executor.launch(LAUNCH["healthy"])
        root, daemon = vm.root, vm.daemon
    assert daemon.returncode == -signal.SIGTERM
    assert launch.returncode is not None
    assert not root.exists()


def test_a_daemon_that_ends_at_once_is_reported_with_its_log_tail() -> None:
    with SimulatedMachine(command=command("import sys; sys.exit('no luck today')")) as vm:
        with pytest.raises(TpuwatchError, match=r"ended with exit status 1(.|\n)*no luck today"):
            vm.start_daemon()
        assert vm.root.exists()


def test_a_daemon_that_never_serves_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "START_SECONDS", 0.1)
    with (
        SimulatedMachine(command=command("import signal; signal.pause()")) as vm,
        pytest.raises(TpuwatchError, match="did not serve within"),
    ):
        vm.start_daemon()


def test_a_daemon_that_dies_later_is_reported() -> None:
    with SimulatedMachine(command=command(SERVE)) as vm:
        vm.start_daemon()
        terminate(vm.daemon)
        with pytest.raises(TpuwatchError, match="the daemon does not answer at http://127"):
            vm.get("/api/v1/events")


def test_a_process_that_ignores_the_request_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "STOP_SECONDS", 0.1)
    deaf = (
        "import signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); signal.pause()"
    )
    process = subprocess.Popen(command(deaf), stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == b"deaf\n"
        terminate(process)
    assert process.returncode == -signal.SIGKILL


def test_the_daemon_is_led_to_the_simulated_cloud_and_nowhere_else() -> None:
    with SimulatedMachine(
        command=command("import os; print(os.environ['GCE_METADATA_HOST'], flush=True)\n" + SERVE)
    ) as vm:
        vm.start_daemon()
        config = load_config(vm.root / "tpuwatch.toml", {})
        assert config.cloud.endpoint == vm.simulator.cloud.address
        assert vm.log_tail().split()[-1] == vm.simulator.metadata.address


def test_a_simulator_that_cannot_start_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(machine, "Simulator", None)
    with pytest.raises(TypeError), SimulatedMachine():
        pass
    assert list(tmp_path.iterdir()) == []


def test_launch_runs_with_its_own_environment_and_not_ours() -> None:
    with SimulatedMachine(pace=0, command=command(SERVE)) as vm:
        assert vm.simulator.executor.launch(LAUNCH["premapped"]).wait(60) == 1
        (log,) = vm.logs.glob("*.log.INFO.*")
        assert "Size: 268435456 " in log.read_text()
        assert "Attempting to allocate" in (vm.jobs / "premapped.log").read_text()
    assert "TPU_PREMAPPED_BUFFER_SIZE" not in os.environ


def test_a_command_runs_in_its_directory_and_without_what_is_for_the_users_own_jobs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("TPU_PREMAPPED_BUFFER_SIZE", "TPUWATCH_WORKLOAD", "LIBTPU_INIT_ARGS"):
        monkeypatch.setenv(name, "mine")
    script = "import os, sys; print(os.getcwd(), *sys.argv[1:], *sorted(os.environ), file=sys.stderr); sys.exit(3)"
    with SimulatedMachine(command=command(script)) as vm, (tmp_path / "out").open("w+") as output:
        assert vm.run(["tune", "--json"], output) == 3
        output.seek(0)
        directory, *words = output.read().split()
        assert (Path(directory).resolve(), words[:2]) == (vm.root.resolve(), ["tune", "--json"])
        assert [word for word in words if word.startswith(("TPU", "LIBTPU"))] == ["TPUWATCH_CONFIG"]


def test_what_to_type_elsewhere_begins_with_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    with SimulatedMachine(command=command(SERVE)) as vm:
        cd, export, *_ = vm.commands()
        assert (cd, export) == (f"cd {vm.root}", f"export TPUWATCH_CONFIG={vm.root}/tpuwatch.toml")
        monkeypatch.setenv("PATH", "/nowhere")
        assert vm.commands()[2] == f"export PATH={Path(sys.executable).parent}:$PATH"


@pytest.mark.slow
def test_a_command_that_is_interrupted_ends_with_all_that_it_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wait, begun, interruptions = subprocess.Popen.wait, tmp_path / "begun", ["Ctrl-C"]

    def interrupted(process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        if timeout is None and interruptions:
            interruptions.clear()
            machine.wait_for(lambda: begun.exists() or None, 60)
            raise KeyboardInterrupt
        return wait(process, timeout)

    script = (
        "import signal, subprocess, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])\n"
        f"open({str(begun)!r}, 'w').write(str(child.pid)); signal.pause()"
    )
    monkeypatch.setattr(machine, "STOP_SECONDS", 0.1)
    with SimulatedMachine(command=command(script)) as vm, (tmp_path / "out").open("w") as output:
        monkeypatch.setattr(subprocess.Popen, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            vm.run([], output)
        monkeypatch.setattr(subprocess.Popen, "wait", wait)
    with pytest.raises(ProcessLookupError):
        os.kill(int(begun.read_text() or "0"), 0)
