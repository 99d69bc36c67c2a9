"""A simulator of the Cloud TPU services and of a TPU VM, for `tpuwatch sim`, the demo and tests.

In: a scenario, and what is asked of it while it runs.
Out: services on loopback, processes, logs.
Never: looks at, names or touches what is real on the machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.core.lazy import public_face

if TYPE_CHECKING:
    from tpuwatch.sim.client import Client
    from tpuwatch.sim.demo import Demo
    from tpuwatch.sim.directory import SimulatorDirectory, default_directory
    from tpuwatch.sim.host.launch import LAUNCH_OPTIONS, LaunchScript, add_launch_arguments, run_launch
    from tpuwatch.sim.machine import SimulatedMachine
    from tpuwatch.sim.output import print_start, print_state, print_step
    from tpuwatch.sim.scenario.file import DEFAULT_SCENARIO, built_in_scenarios, load_scenario
    from tpuwatch.sim.simulator import Simulator
else:
    __getattr__, __all__ = public_face(__name__, __file__)
