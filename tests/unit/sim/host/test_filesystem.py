"""The simulated machine's file system, as tpuwatch's own readers see it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tpuwatch.core.clock import SystemClock
from tpuwatch.host.listeners import Listeners
from tpuwatch.host.memory import read_memory
from tpuwatch.host.procfs import ProcFs
from tpuwatch.restart.local.linux import Linux
from tpuwatch.sim.host.filesystem import AVAILABLE_KIB, MEMORY_KIB, MachineFiles, on_machine


def made(directory: Path) -> MachineFiles:
    return MachineFiles(directory, chips=4, generation="v5e")


def test_only_jobs_that_write_to_its_logs_are_processes_of_the_machine(tmp_path: Path) -> None:
    processes = ProcFs(made(tmp_path).root / "proc")
    assert processes.pids() == []
    with on_machine(tmp_path / "tpu_logs"):
        assert processes.pids() == [os.getpid()]
        found = processes.numbered({os.getpid()})
        assert all(processes.is_there(process) for process in found[os.getpid()])
    with on_machine(tmp_path / "elsewhere/tpu_logs"), on_machine(None):
        assert processes.pids() == []


def test_a_job_that_was_killed_is_removed_before_its_number_is_given_to_another(tmp_path: Path) -> None:
    machine = made(tmp_path)
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    (machine.root / f"proc/{ended.pid}").symlink_to(f"/proc/{ended.pid}")
    machine.sweep()
    assert ProcFs(machine.root / "proc").pids() == []
    assert ProcFs(machine.root / "proc").uptime() is not None


def test_a_port_has_a_listener_while_it_is_open(tmp_path: Path) -> None:
    machine = made(tmp_path)
    listeners = Listeners(ProcFs(machine.root / "proc"))
    machine.listen((40_001,))
    (one,) = listeners.look((8431, 40_001), (), 10.0, 10.0)
    machine.listen((40_001,))
    assert listeners.look((40_001,), (), 20.0, 20.0) == (one,)
    machine.listen(())
    assert listeners.look((40_001,), (), 30.0, 30.0) == ()


def test_its_memory_is_its_own_and_its_boot_another(tmp_path: Path) -> None:
    machine = made(tmp_path)
    memory = read_memory(ProcFs(machine.root / "proc"), machine.root, [os.getpid()], 0)
    assert (memory.total, memory.available) == (MEMORY_KIB * 1024, AVAILABLE_KIB * 1024)
    boot = ProcFs(machine.root / "proc").boot_id()
    assert len({boot, ProcFs().boot_id(), ProcFs(made(tmp_path).root / "proc").boot_id()}) == 3


def test_no_program_of_the_real_machine_acts_for_it(tmp_path: Path) -> None:
    machine = Linux(SystemClock(), made(tmp_path).root)
    assert machine.find("systemctl") == machine.find("sh") == ""
    assert machine.run(["sh", "-c", "true"], 1.0, {}, lambda: False).code is None
