"""One process that loads libtpu, as its log files show it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.model import DEFAULT_PREMAPPED_BYTES
from tpuwatch.sim.host import report
from tpuwatch.sim.host.glog import BUILT, prefix

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpuwatch.sim.host.glog import GlogFiles

BUILD_LABEL = "libtpu_lts_20261020_b_RC01"  # by which the version, 0.0.51, is known in a log

_SYSTEM = "tpu_system_state.cc"
_COMPILER = "deepsea_compiler_base.cc"
_BACKEND = "deepsea_compiler_backend.cc"
_PASSES = "deepsea_compiler_hlo_passes.cc"


class SimulatedProcess:
    """Writes libtpu's log files for one process id.

    Records carry the clock's time. What is written at INFO reaches the disk when its block is full or when a graver
    record follows, as with the real library.
    """

    def __init__(self, files: GlogFiles) -> None:
        self.files = files
        self.pid = files.pid
        self.clock = files.clock

    def record(self, severity: str, text: str, source: str = "tpu_hal.cc:471", *, thread: int | None = None) -> None:
        """One record: `severity` is I, W, E or F, `source` a file:line, `thread` by default the main one."""
        thread = self.pid if thread is None else thread
        self.files.write(severity, prefix(severity, self.clock.time(), thread, source) + text)

    def loaded(self, flags: Sequence[str] = ()) -> None:
        """What a process says first: the library's build and arguments, `flags` of LIBTPU_INIT_ARGS among them."""
        build = (
            "Linux version 6.8.0-1015-gcp (builder@builder.example) #17 SMP PREEMPT_DYNAMIC",
            f"Process id {self.pid}",
            "Current working directory /home/user",
            f"Built on {BUILT}",
            "  as //learning/45eac/tfrc/executor:_libtpu.so.native",
            f"Build label: {BUILD_LABEL}",
            "Command line arguments:",
            "argv[0]: './tpu_driver'",
            "argv[1]: '--minloglevel=0'",
            "argv[2]: '--stderrthreshold=3'",
            f"argv[3]: '--log_dir={self.files.directory}'",
            "argv[4]: '--deepsea_chips_per_host_bounds=2,2,1'",
            "argv[5]: '--deepsea_host_bounds=1,1,1'",
            *(f"argv[{number}]: '{flag}'" for number, flag in enumerate(flags, 6)),
        )
        for number, text in enumerate(build):
            self.record("I", text, f"b295d63588a.cc:{792 + 9 * number}")
        self.record("I", "Remote crash gathering hook installed.", "init.cc:78")

    def banner(
        self,
        *,
        premapped_bytes: int | None = DEFAULT_PREMAPPED_BYTES,
        threshold_bytes: int | None = None,
        partitions: int = 1,
        flags: Sequence[str] = (),
    ) -> None:
        """What a process says before it asks for the TPU.

        The premapped line is the setting, not that anything was allocated; the threshold is the buffer's size where
        none is given.
        """
        self.loaded(flags)
        self.record("I", "--tpu_use_tfrt not specified. Using default value: true", "tpu_runtime_type_flags.cc:79")
        self.record("I", "Registered plugin from module: RuntimeMetricHelper")
        self.record("I", "Enabling threaded logging for severity WARNING", "logger.cc:310")
        if premapped_bytes is not None:
            self._premapped_setting(premapped_bytes, threshold_bytes, partitions)
        self.record(
            "I",
            "TpuStatesManager::GetOrCreate(): no tpu system exists. Creating a new tpu system.",
            "singleton_tpu_states_manager.cc:110",
        )

    def init_start(self, *, premapped_bytes: int | None = DEFAULT_PREMAPPED_BYTES) -> None:
        """The driver opens the chips and pins the host's premapped region."""
        self.record("I", "Found 4 TPU v5 lite chips.", "device_util.cc:89")
        if premapped_bytes is not None:
            self.record("I", "Starting premapped memory manager initialization...", "tpu_hal.cc:214")
            self.record(
                "I",
                f"CreateTpuSystemState: using TPU host premapped buffer of size: {premapped_bytes}",
                f"{_SYSTEM}:200",
            )

    def init_ok(self, seconds: float) -> None:
        """The TPU came up `seconds` after it was asked to."""
        self.record(
            "I", f"CreateTpuSystemState: TPU initialization is successful and it took {seconds:.6f}s", f"{_SYSTEM}:216"
        )
        self.record("I", "tpu::System initialized, current host id: 0, logical device ids: 0,1,2,3", f"{_SYSTEM}:221")

    def compile_ok(self) -> None:
        """A program compiles and fits: INFO lines that name HBM use without being a complaint."""
        self._compile_start()
        used = 6 << 30
        worker = self.pid + 23
        self.record("I", "BACKEND_PASSES stage duration: 1.420642247s", f"{_COMPILER}:3840", thread=worker)
        usage = f"XLA::TPU program HBM usage: {report.short(used)} / {report.short(report.HBM_BYTES)}"
        self.record("I", usage, f"{_BACKEND}:2397", thread=worker)
        self.record(
            "I",
            f"Total hbm usage >= {report.short(used + (258 << 20))}:\n    reserved        258.00M \n"
            f"    program         {report.short(used):>7} \n    arguments            0B \n\n"
            "Output size 512B; shares 0B with arguments.\n",
            f"{_BACKEND}:2449",
            thread=worker,
        )
        self.record("I", "CODE_GENERATION stage duration: 11.51724ms", f"{_BACKEND}:1700", thread=worker)
        self._compile_end()

    def hbm_oom(self, allocations: Sequence[report.SimulatedAllocation]) -> None:
        """A program does not fit into HBM at compile time."""
        self._compile_start()
        used = sum(allocation.size for allocation in allocations)
        worker = self.pid + 21
        text = f"{report.headline(used)} Memory usage report: \n{report.usage_table(allocations)}"
        self.record("E", text, f"{_COMPILER}:3563", thread=worker)
        self.record("E", "Failed to verify buffer assignment.", f"{_COMPILER}:3787", thread=worker)
        self._compile_end()

    def premapped_exhausted(self, requested: int, free: int) -> None:
        """An allocation from the premapped region fails. Sizes are bytes."""
        self.record("E", premapped_message(requested, free), "tpu_host_allocator.cc:412", thread=self.pid + 40)

    def busy(self) -> None:
        """Another process holds the first chip."""
        reason = "open(/dev/vfio/0): 16: Device or resource busy; Couldn't open iommu group /dev/vfio/0"
        self.record("E", f"FAILED_PRECONDITION: {reason}", "vfio_device_access.cc:245", thread=self.pid + 4)
        self.record("E", f"Failed to initialize TPU system with error: FAILED_PRECONDITION: {reason}", "tpu_hal.cc:272")

    def flush(self) -> None:
        """Put what is buffered on the disk."""
        self.files.flush()

    def close(self) -> None:
        """End in order: nothing is lost."""
        self.files.close()

    def _premapped_setting(self, size: int, threshold: int | None, partitions: int) -> None:
        text = f"Size: {size} Threshold: {size if threshold is None else threshold} Partitions: {partitions}"
        self.record("I", f"TPU premapped buffer enabled. {text}", "singleton_tpu_states_manager.cc:86")

    def _compile_start(self) -> None:
        self.record(
            "I", f"XLA::TPU running hlo passes for 2114 instructions, module: {report.MODULE}", f"{_PASSES}:6721"
        )
        self.record("I", f"HLO optimizing module: {report.MODULE} instructions: 2114", f"{_PASSES}:6616")
        self.record("I", "HLO_PASSES stage duration: 16.2020725ms", f"{_PASSES}:6836")
        self.record("I", "Trying strategy: 1, 4", "buffer_assignment.cc:3752", thread=self.pid + 21)

    def _compile_end(self) -> None:
        self.record("I", "END_TO_END stage duration: 1.74009889025s", f"{_COMPILER}:1029")


def premapped_message(requested: int, free: int) -> str:
    """The words of a failed allocation from the premapped region, in the log and on a job's stderr. Sizes are bytes."""
    return (
        "Allocating buffer from premapped region failed with: RESOURCE_EXHAUSTED: Attempting to allocate "
        f"{report.short(requested)}. That was not possible. There are {report.short(free)} free."
    )
