"""A simulator of the Cloud TPU services and of a TPU VM, for `tpuwatch sim`, the demo and tests.

In: a scenario, and what is asked of it while it runs.
Out: services on loopback, processes, logs.
Never: looks at, names or touches what is real on the machine.
"""

from tpuwatch.core.lazy import LazyFace

with LazyFace(__name__):
    from tpuwatch.sim.client import Client
    from tpuwatch.sim.demo import Demo
    from tpuwatch.sim.directory import SimulatorDirectory, default_directory
    from tpuwatch.sim.host.tuned_program import LAUNCH_OPTIONS, LaunchScript, add_launch_arguments, run_launch
    from tpuwatch.sim.machine import SimulatedMachine
    from tpuwatch.sim.output import print_start, print_state, print_step
    from tpuwatch.sim.scenario.file import DEFAULT_SCENARIO, built_in_scenarios, load_scenario
    from tpuwatch.sim.simulator import Simulator
