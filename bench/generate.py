"""Logs to measure with, the same bytes on every run: libtpu's real mix of lines, and storms of failures.

The mix is that of a process which compiles one program after another: each compilation leaves some forty lines of the same
form, some of them without a header, and now and then a warning. Names and numbers are made up.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tpuwatch.sim.dialect import DIALECTS
from tpuwatch.sim.logwriter import premapped_message

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PID = 4711
NAME = f"tpu_driver.bench-vm.user.log.INFO.20260901-000000.{PID}"  # as libtpu names its files
EVENT_EVERY = 2000  # compilations between two failures: some ten megabytes
_DAY = 86_400

# `@` stands for severity and date, the time's fraction and the thread are filled in. A line without `@` has no header.
_COMPILATION = """\
@ {main} deepsea_compiler_hlo_passes.cc:6721] XLA::TPU running hlo passes for {instructions} instructions, module: {module}
@ {main} deepsea_compiler_hlo_passes.cc:6769] Initial HLO module: {module} instructions: {instructions} fingerprint: 
@ {main} deepsea_compiler_hlo_passes.cc:6616] HLO optimizing module: {module} instructions: {instructions}
@ {main} deepsea_compiler_hlo_passes.cc:6629] XLA::TPU HLO optimization
@ {main} deepsea_compiler_hlo_passes.cc:6491] xla_tpu_impure_hlo_parallel_compile is DISABLED. {module}
@ {main} deepsea_compiler_hlo_passes.cc:5508] XLA::TPU HLO PostOptimizationPipeline
@ {main} tpu_plumb_vmem_info.cc:677] scavenging_mode: 0 for module: {module}
@ {main} deepsea_compiler_hlo_passes.cc:6836] HLO_PASSES stage duration: {passes}ms
@ {worker} tpu_chip_config.cc:367] Resolved chip config alias default->megachip for ghostlite, 
@ {worker} memory_space_assignment_util.cc:578] MSA Vmem breakdown: default scoped vmem (from flag): 33554432; \
does_msa_directly_allocate_scoped_vmem: F; bytes_for_msa_to_allocate: 100597760
@ {worker} buffer_assignment.cc:3752] Trying strategy: 1, 4
@ {worker} deepsea_compiler_base.cc:3840] BACKEND_PASSES stage duration: {backend}s
@ {worker} deepsea_compiler_backend.cc:2007] final program bundle count: {bundles} note this count does not reflect cycles \
spent executing delays.
@ {worker} deepsea_compiler_backend.cc:2224] Program divided into 2 overlays without HLO functions ({program}K).
@ {worker} deepsea_compiler_backend.cc:2395] XLA::TPU module name: {module}
@ {worker} deepsea_compiler_backend.cc:2397] XLA::TPU program HBM usage: {program}K / 31.24G
@ {worker} deepsea_compiler_backend.cc:2404] Note that --xla_tpu_max_hbm_size_mib is not specified. This means that the \
compiler may use up all available HBM, possibly prioritizing other metrics (latency, compile-time, ..) over memory usage.
@ {worker} deepsea_compiler_backend.cc:2438] XLA::TPU program VMEM usage: 24.14M / 128.00M
@ {worker} deepsea_compiler_backend.cc:2449] Total hbm usage >= 520.92M:
    reserved        264.00M 
    program         {program:>6}K 
    arguments       256.00M 

Output size 512B; shares 0B with arguments.

Total host usage >= 0B:
    reserved             0B 
    program         unknown size 
    arguments            0B 

Output size 0B; shares 0B with arguments.

@ {worker} deepsea_compiler_backend.cc:2453] Program sflag requirement 224B:
    reserved           204B
    scoped              20B
Program smem requirement 24B:
    global               8B
    scoped              16B
Program vmem requirement 24.14M:
    scoped           24.14M
Program host requirement 0B:
Program hbm requirement {program}K:
    overlays         {program}K
@ {worker} deepsea_compiler_backend.cc:2461] XLA::TPU program SMEM usage: 1.9K / 1.00M (2 parameters)
@ {worker} deepsea_compiler_backend.cc:1700] CODE_GENERATION stage duration: {generation}ms
@ {worker} isa_program_util_common.cc:386] (HLO module {module}): Executable fingerprint:{fingerprint}
@ {worker} isa_program_util_common.cc:390] (HLO module {module}): Executable fingerprint (including data \
segments):{fingerprint}
@ {worker} isa_program_util_common.cc:393] (HLO module {module}): Host transfer fingerprint:{fingerprint}
@ {main} deepsea_compiler_base.cc:1029] END_TO_END stage duration: {total}s
@ {main} deepsea_compiler_base.cc:1030] Note that END_TO_END duration also includes time outside of HLO_PASSES, \
BACKEND_PASSES, and CODE_GENERATION
"""
_WARNING = """\
! {worker} lowering_emitter.cc:7749] Successful retry compilation of {module}_fusion after retry_count=1 
! {worker} lowering_emitter.cc:7749] HLO:
! {worker} lowering_emitter.cc:7749]   fusion.1 = bf16[8192,8192]{{1,0:T(8,128)(2,1)}} fusion(param_1.3), kind=kLoop, calls=
! {worker} lowering_emitter.cc:7749]   {{
! {worker} lowering_emitter.cc:7749]     bitcast_input.1 = bf16[8192,8192]{{1,0:T(8,128)(2,1)}} parameter(0)
! {worker} lowering_emitter.cc:7749]   }}
"""
_MODULES = ("jit_train_step", "jit_eval_step", "jit_init_fn", "jit__multi_slice", "jit_convert_element_type", "jit_fn")


def healthy(seed: int = 1, event_every: int = EVENT_EVERY) -> Iterator[str]:
    """An endless log in pieces of one compilation: the head and banner once, then the mix with a failure now and then."""
    yield head()
    yield _banner()
    plain, warned = _stamped(_COMPILATION), _stamped(_WARNING + _COMPILATION)
    random_ = random.Random(seed)  # noqa: S311 - the same log each time is what is wanted
    number = 0
    while True:
        number += 1
        clock = _clock(2.0 * number)
        template = warned if number % 20 == 0 else plain
        yield template.format(
            clock[:-6],
            int(clock[-6:]),
            main=f"{PID:>7}",
            worker=f"{PID + number % 40:>7}",
            module=_MODULES[number % len(_MODULES)],
            instructions=random_.randrange(10, 4000),
            passes=random_.randrange(10**8) / 10**6,
            backend=random_.randrange(10**9) / 10**8,
            bundles=f"{random_.randrange(1000, 99_999):,}",
            program=random_.randrange(1000, 9999) / 10,
            generation=random_.randrange(10**8) / 10**6,
            fingerprint=f"{random_.getrandbits(256):064x}",
            total=random_.randrange(10**9) / 10**8,
        )
        if number % event_every == 0:
            yield failure(number, 2.0 * number + 1.0)


def failures(microseconds: int = 10) -> Iterator[str]:
    """An endless log with a failure in every line, `microseconds` apart, no two of the same sizes."""
    yield head()
    number = 0
    while True:
        number += 1
        yield failure(number, number * microseconds / 1e6)


def failure(number: int, seconds: float) -> str:
    """A record that a rule recognises; `seconds` since midnight of the log's first day."""
    words = premapped_message((5 << 30) + number * (10 << 20), (3 << 30) + number % 97 * (10 << 20))
    return f"E{_clock(seconds)} {PID + number % 7:>7} tpu_host_allocator.cc:412] {words}\n"


def dull(number: int, seconds: float) -> str:
    """A record that says nothing of interest; `seconds` since midnight of the log's first day."""
    return f"I{_clock(seconds)} {PID:>7} buffer_assignment.cc:3752] Trying strategy: {number % 5}, {number}\n"


def head() -> str:
    """What every file of libtpu's begins with."""
    return "".join(
        f"{line}\n"
        for line in (
            "Log file created at: 2026/09/01 00:00:00",
            "Running on machine: bench-vm",
            *DIALECTS["0.0.51"].header,
            "Log line format: [IWEF]mmdd hh:mm:ss.uuuuuu threadid file:line] msg",
        )
    )


def write(path: Path, size: int, pieces: Iterator[str]) -> int:
    """Write whole pieces until the file holds `size` bytes; returns how many it then holds."""
    written = 0
    with path.open("wb") as file:
        while written < size:
            written += file.write(next(pieces).encode())
    return written


def _banner() -> str:
    said = (
        f"Process id {PID}",
        "Current working directory /home/user/jobs",
        f"Build label: {DIALECTS['0.0.51'].label}",
        "Command line arguments:",
        "argv[0]: './tpu_driver'",
        "argv[1]: '--minloglevel=0'",
        "argv[2]: '--deepsea_chips_per_host_bounds=2,2,1'",
        "TPU premapped buffer enabled. Size: 4294967296 Threshold: 4294967296 Partitions: 1",
        "CreateTpuSystemState: TPU initialization is successful and it took 7.25s",
    )
    return "".join(f"I{_clock(0.0)} {PID:>7} b295d63588a.cc:{792 + i}] {text}\n" for i, text in enumerate(said))


def _clock(seconds: float) -> str:
    """MMDD hh:mm:ss.uuuuuu, from the first of September on, through months of thirty days."""
    days, rest = divmod(seconds, _DAY)
    month, day = divmod(int(days), 30)
    whole = int(rest)
    return (
        f"{9 + month % 4:02d}{day + 1:02d} {whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"
        f".{round((rest - whole) * 1e6) % 1_000_000:06d}"
    )


def _stamped(template: str) -> str:
    """The template with a time in each header, some microseconds after the one before."""
    lines, microsecond = [], 0
    for line in template.splitlines(keepends=True):
        if line[0] in "@!":
            microsecond += 1000 + 37 * len(line)
            line = ("I" if line[0] == "@" else "W") + "{0}" + f"{microsecond:06d}" + line[1:]
        lines.append(line)
    return "".join(lines)
