"""Logs to measure with, the same bytes on every run: libtpu's real mix of lines, and floods of failures.

The mix is that of a process which compiles one program after another: each compilation leaves some forty lines of the
same form, some of them without a header, and now and then a warning. Names and numbers are made up.
"""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import TYPE_CHECKING

from tpuwatch.logs.rules.literals import HEALTHY
from tpuwatch.sim.host.glog import BINARY
from tpuwatch.sim.host.logwriter import BUILD_LABEL, premapped_message

if TYPE_CHECKING:
    from collections.abc import Iterator

PID = 4711
NAME = f"tpu_driver.bench-vm.user.log.INFO.20260901-000000.{PID}"  # as libtpu names its files
EVENT_EVERY = 2000  # compilations between two failures: some ten megabytes
_DAY = 86_400

# In the templates `@` stands for an INFO record's severity and time, `!` for a warning's; a line without either has no
# header. They are files of their own because libtpu leaves blanks at the ends of lines, and these do too.
_TEMPLATES = Path(__file__).parent
_MODULES = ("jit_train_step", "jit_eval_step", "jit_init_fn", "jit__multi_slice", "jit_convert_element_type", "jit_fn")


def healthy(seed: int = 1, event_every: int = EVENT_EVERY) -> Iterator[str]:
    """An endless log in pieces of one compilation: head and banner once, then the mix with a failure now and then."""
    yield head()
    yield _banner()
    compilation, warning = ((_TEMPLATES / name).read_text() for name in ("compilation.txt", "warning.txt"))
    plain, warned = _stamped(compilation), _stamped(warning + compilation)
    random_ = random.Random(seed)
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


def processes(compilations: int = 2) -> Iterator[str]:
    """An endless log of short processes, one after the other: what libtpu says while it starts, then compilations."""
    said = HEALTHY.read_text(encoding="utf-8").split("\n\n", 1)[0].splitlines()
    for number in itertools.count():
        yield head()
        for place, text in enumerate(said):
            yield f"I{_clock(10.0 * number)} {PID + number:>7} start.cc:{100 + place}] {text}\n"
        mix = healthy(number)
        yield from itertools.islice(mix, 2, 2 + compilations)


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
            *BINARY,
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
        "Built on Sep 01 2026 00:00:00 (1788220800)",
        "Current working directory /home/user/jobs",
        f"Build label: {BUILD_LABEL}",
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
