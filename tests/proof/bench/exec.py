"""`tpuwatch exec`: what a command loses by it, in output per second and in time before its first instruction."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.proof.bench.figures import Figure
from tests.proof.bench.processes import peak_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.proof.bench.figures import Bench

# As people call it, where it is installed: to find a module by its name takes Python longer.
_SCRIPT = Path(sys.executable).with_name("tpuwatch")
_TPUWATCH = (str(_SCRIPT),) if _SCRIPT.exists() else (sys.executable, "-m", "tpuwatch")
_EXEC = (*_TPUWATCH, "exec", "--")
_HIT = (
    b"E0901 13:44:15.123456 4711 x.cc:1] Attempting to allocate 5.00G. That was not possible. There are 3.00G free.\n"
)
_LINE = b"I0901 13:44:14.123456 4711 buffer_assignment.cc:3752] Trying strategy: 3, 17 and nothing of interest here\n"
_STEP = b"step 12: loss 0.250000 grad_norm 1.5000 lr 0.0003 tokens/s 12345 checkpoint in 88 steps\n"
# Writes so many bytes of lines with a failure at the end, as fast as it can, and ends with a status.
_WRITER = f"""
import os, sys
block, left = {_LINE!r} * 2400, int(sys.argv[1])
while left > 0:
    left -= os.write(1, block)
os.write(1, {_HIT!r})
sys.exit(int(sys.argv[2]))
"""
_STEPS_BYTES = 64_000_000
# The same with what a training loop prints; it leaves the time of its end in a file.
_STEPS = f"""
import pathlib, sys, time
left = int(sys.argv[1])
while left > 0:
    left -= sys.stdout.buffer.write({_STEP!r})
sys.stdout.buffer.write({_HIT!r})
sys.stdout.flush()
pathlib.Path(sys.argv[2]).write_text(str(time.monotonic()))
sys.exit(1)
"""
_CLOCK = "import time; print(time.monotonic())"


def run(bench: Bench) -> Iterator[Figure]:
    """Throughput into a file and into a pipe, time to start, memory of what stands between."""
    home = bench.directory("home")
    environ = {**os.environ, "HOME": str(home), "XDG_STATE_HOME": str(home)}
    yield from _start(bench, environ)
    yield from _throughput(bench, environ)
    yield Figure(
        "exec: from the end of 64 MB of training steps to the finding", _ending(bench, environ), "s", at_most=1
    )
    yield Figure("exec: most memory of the process that copies", _memory(bench, environ) / (1 << 20), "MiB", at_most=96)


def _start(bench: Bench, environ: Mapping[str, str]) -> Iterator[Figure]:
    first = (sys.executable, "-S", "-E", "-c", _CLOCK)
    alone, under, bare = [], [], []
    for _ in range(1 + bench.scale.runs):
        alone.append(_until_first(first, environ))
        under.append(_until_first((*_EXEC, *first), environ))
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        bare.append(time.perf_counter() - start)
    own = statistics.median(under[1:]) - statistics.median(alone[1:])
    python = statistics.median(bare[1:])
    yield Figure("exec: until the command's first instruction", 1000 * own, "ms")
    yield Figure("exec: of it tpuwatch's own, without Python's start", 1000 * (own - python), "ms", at_most=60)
    yield Figure("exec: until the first instruction: to python -c pass", own / python, "x")


def _until_first(command: Sequence[str], environ: Mapping[str, str]) -> float:
    """Seconds until a command says what time it is."""
    start = time.monotonic()
    done = subprocess.run(command, env=environ, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return float(done.stdout) - start


def _throughput(bench: Bench, environ: Mapping[str, str]) -> Iterator[Figure]:
    """Both by turns, so that whatever else the machine does befalls both."""
    size = bench.scale.output
    out, report = (bench.scratch / name for name in ("out", "report.json"))
    writer = f"{sys.executable} -S -c '{_quoted(_WRITER)}' {size}"
    under = f"{' '.join(_TPUWATCH)} exec"
    lines = {
        "plain pipe": f"{writer} 0 | cat > {out}",
        "file": f"{under} -- {writer} 0 > {out}",
        "found": f"{under} --json {report} -- {writer} 1 > {out}",
        "two pipes": f"{writer} 0 | cat | cat > {out}",
        "pipe": f"{under} -- {writer} 0 | cat > {out}",
    }
    seconds: dict[str, list[float]] = {name: [] for name in lines}
    for _ in range(max(3, bench.scale.runs // 2)):
        for name, line in lines.items():
            out.unlink(missing_ok=True)
            start = time.monotonic()
            subprocess.run(["/bin/sh", "-c", line], env=environ, stderr=subprocess.DEVNULL, check=False)
            seconds[name].append(time.monotonic() - start)
            if name == "found":
                _check(report)
    median = {name: statistics.median(values) for name, values in seconds.items()}
    plain = median["plain pipe"]
    yield Figure("exec: plain pipe into a file", size / plain / 1e6, "MB/s")
    yield Figure("exec: output into a file", size / median["file"] / 1e6, "MB/s")
    yield Figure("exec: output into a file: to a plain pipe", plain / median["file"], "x", at_least=0.9)
    yield Figure("exec: the same, with the failure at its end reported", plain / median["found"], "x")
    yield Figure("exec: output into a pipe: to one more cat", median["two pipes"] / median["pipe"], "x")


def _quoted(text: str) -> str:
    return text.replace("'", "'\\''")


def _check(report: Path) -> None:
    """The failure at the end was found, or the figures are worth nothing."""
    causes = [finding["cause"] for finding in json.loads(report.read_text())["findings"]]
    if causes != ["hbm_oom_runtime"]:
        raise RuntimeError(f"tpuwatch exec found {causes} in the output")


def _ending(bench: Bench, environ: Mapping[str, str]) -> float:
    """Seconds from the end of a command to that of `tpuwatch exec`, which has printed what was wrong."""
    ended, out = bench.scratch / "ended", bench.scratch / "out"
    command = (*_EXEC, sys.executable, "-S", "-c", _STEPS, str(_STEPS_BYTES), str(ended))
    seconds = []
    for _ in range(max(3, bench.scale.runs // 2)):
        with out.open("wb") as file:
            done = subprocess.run(command, env=environ, stdout=file, stderr=subprocess.PIPE, check=False)
        seconds.append(time.monotonic() - float(ended.read_text()))
        if b"hbm_oom_runtime" not in done.stderr:
            raise RuntimeError(f"tpuwatch exec printed {done.stderr!r}")
    return statistics.median(seconds)


def _memory(bench: Bench, environ: Mapping[str, str]) -> int:
    """Bytes that the process at work has taken, most, after it has copied some output."""
    writer = f"import os\nfor _ in range({max(1, bench.scale.output >> 18)}): os.write(1, b'x' * (1 << 18))\ninput()"
    command = [*_EXEC, sys.executable, "-S", "-c", writer]
    with subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        left = max(1, bench.scale.output >> 18) << 18
        assert process.stdout is not None
        while left:
            left -= len(os.read(process.stdout.fileno(), 1 << 20))
        peak = peak_bytes(process.pid)
        process.communicate(b"\n")
    return peak
