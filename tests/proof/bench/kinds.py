"""Logs of many kinds, as programs other than libtpu write them: each against mtail, and at a size and four times it."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.proof.bench import generate, mtail, rules
from tests.proof.bench.figures import Figure
from tests.proof.bench.recognition import Readers
from tpuwatch.logs.rules.catalogue import load_catalogue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.proof.bench.figures import Bench

LINEAR = 4.4  # time at four times the size, to the time at the size
PEER = 20.0  # times as fast as mtail, where nothing else is said
RANKS = 8
_WORDS = (
    *("barrier", "gradients", "loss", "timeout", "quota", "preempted", "heartbeat", "premapped buffer", "HBM"),
    *("permission", "coordination service", "checkpoint", "out of range", "memory", "connection", "deadline"),
)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of log: piece `number` of it, with made-up numbers."""

    piece: Callable[[int, random.Random], str]
    at_least: float = PEER
    share: float = 1.0  # of the common size, for what is slow to read


def _seconds(number: int) -> str:
    return f"{number // 3600 % 24:02d}:{number // 60 % 60:02d}:{number % 60:02d}"


def _step(number: int, rng: random.Random) -> str:
    return f"step {number} loss {rng.random() * 9:.4f} grad_norm {rng.random():.3f} lr 1.0e-04"


def _allocation_failure(number: int, rng: random.Random) -> str:
    size, free = rng.random() * 9 + 1, rng.random()
    return (
        f"E0901 {_seconds(number)}.{number % 1_000_000:06d} {4711 + number % 7} tpu.cc:33] RESOURCE_EXHAUSTED: "
        f"Attempting to allocate {size:.2f}G. That was not possible. There are {free:.2f}G free.; (0x0x0_HBM0)\n"
    )


def _printed_failure(number: int, rng: random.Random) -> str:
    """What a program prints while it tries again and again: no header, and no beginning of a record."""
    return rng.choice(
        (
            f"Failed to fetch URL on try {number % 6 + 1} out of 6: Timeout was reached\n",
            f"UNAVAILABLE: failed to connect to all addresses; last error: ipv4:10.0.0.{number % 4}:8476: refused\n",
            f"DEADLINE_EXCEEDED: Barrier timed out. Barrier_id: sync_{number % 10}\n",
            f"worker {number % 8} waits for its peers, {rng.random():.3f} s\n",
        )
    )


def _report(number: int, rng: random.Random) -> str:
    """A report of 1,000 allocations: a third of a megabyte."""
    lines = [
        f"E0901 {_seconds(number)}.000001 4711 tpu.cc:33] Ran out of memory in memory space hbm. Used 19G of 15G hbm.",
        "",
        "  Largest program allocations in hbm:",
        "",
    ]
    for place in range(1, 1001):
        lines += [
            f"  {place}. Size: {rng.randint(16, 999)}.00M",
            f'     Operator: op_type="Mul" op_name="gradients/layer_{place}/mul"',
            "     Shape: f32[64,128,56,56]{0,3,2,1:T(8,128)}",
            "     Unpadded size: 98.00M",
            f"     XLA label: %fusion.{place} = fusion",
            "     Allocation type: HLO temp",
            "     ==========================",
            "",
        ]
    return "\n".join(lines) + "\n"


KINDS: dict[str, Kind] = {
    "verbose modules": Kind(
        lambda n, rng: (
            f"I0901 {_seconds(n)}.{n % 1_000_000:06d} 4711 barrier.cc:33] barrier {n} of {RANKS} tasks: loss "
            f"of {rng.randint(0, 9)} heartbeats, {rng.random():.4f} s\n"
        )
    ),
    "absl": Kind(lambda n, rng: f"I0901 {_seconds(n)}.123456 140213 train.py:233] {_step(n, rng)}\n"),
    "print": Kind(lambda n, rng: f"{_step(n, rng)}\n"),
    "key=value": Kind(
        lambda n, rng: f"step={n} loss={rng.random() * 9:.4f} grad_norm={rng.random():.3f} tokens_per_s={n % 99991}\n"
    ),
    "MaxText": Kind(
        lambda n, rng: (
            f"completed step: {n}, seconds: {3 + rng.random():.3f}, TFLOP/s/device: 120.{n % 10}, "
            f"Tokens/s/device: 1000.{n % 7}, total_weights: 65536, loss: {rng.random() * 9:.3f}\n"
        )
    ),
    "JSON lines": Kind(
        lambda n, rng: (
            f'{{"step": {n}, "loss": {rng.random() * 9:.4f}, "grad_norm": {rng.random():.3f}, '
            f'"time": "2026-09-01T{_seconds(n)}Z"}}\n'
        )
    ),
    "Keras": Kind(
        lambda n, rng: (
            f"\r{n % 600:3d}/600 [{'=' * (n % 600 // 20):30s}] - ETA: {600 - n % 600}s - loss: "
            f"{rng.random():.4f} - accuracy: {rng.random():.4f}"
        )
    ),
    "tqdm": Kind(
        lambda n, rng: (
            f"\rEpoch 3: {n % 100:3d}%|{'#' * (n % 100 // 5):20s}| {n}/100000 [00:{n % 60:02d}<12:10,  "
            f"{rng.random() * 9:.1f}it/s, loss={rng.random():.3f}]"
        )
    ),
    "words of the rules": Kind(
        lambda n, rng: f"note {n}: {rng.choice(_WORDS)} and {rng.choice(_WORDS)} are as before\n", at_least=8
    ),
    "eight ranks": Kind(
        lambda n, rng: (
            f"(TrainWorker pid={4000 + n % RANKS}, ip=10.0.0.{n % RANKS}) [rank{n % RANKS}]: {_step(n // RANKS, rng)}\n"
        )
    ),
    "containers and colours": Kind(
        lambda n, rng: (
            f"2026-09-01T{_seconds(n)}.123456789Z stdout F \x1b[36m(EngineCore pid={4000 + n % RANKS})\x1b[0m "
            f"\x1b[32mINFO\x1b[0m {_step(n, rng)}\n"
        )
    ),
    "an event in each line": Kind(_allocation_failure, at_least=4, share=1 / 4),
    "printed failures": Kind(_printed_failure, at_least=4, share=1 / 4),
    "reports": Kind(_report, at_least=5, share=1 / 4),
}

# What a program prints that trains.
TRAINING = (
    *("verbose modules", "absl", "print", "key=value", "MaxText", "JSON lines", "Keras", "tqdm", "eight ranks"),
    "containers and colours",
)


def kinds(bench: Bench) -> Iterator[Figure]:
    """Each kind: the daemon's pipeline and `tpuwatch diagnose` against mtail, and how both grow."""
    few, readers = rules.few(load_catalogue()), Readers(bench.scratch)
    for name, kind in KINDS.items():
        directory = bench.directory(name.replace(" ", "-"))
        size = int(bench.scale.kind_log * kind.share)
        small, large = (_write(directory / f"{times}.log", times * size, kind) for times in (1, 4))
        part = _write(directory / "part.log", min(bench.scale.peer_log, size), kind)
        pipeline = [readers.pipeline(log, job=True) for log in (small, large)]
        diagnose = [readers.diagnose(log) for log in (small, large)]
        yield Figure(f"{name}: the pipeline, 4 times the log", pipeline[1] / pipeline[0], "x", at_most=LINEAR)
        yield Figure(f"{name}: diagnose, 4 times the log", diagnose[1] / diagnose[0], "x", at_most=LINEAR)
        megabytes = large.stat().st_size / 1e6
        ways = {way: megabytes / seconds for way, seconds in readers.ways(large, pipeline[1], diagnose[1]).items()}
        for way, speed in ways.items():
            yield Figure(f"{name}: {way}", speed, "MB/s")
        if mtail.PROGRAM:
            peer = mtail.speed(part, few, bench.scratch, counts=False)
            yield Figure(f"{name}: mtail with {rules.FEW} patterns", peer, "MB/s")
            for way, speed in ways.items():
                yield Figure(f"{name}: {way} to mtail", speed / peer, "x", at_least=kind.at_least)


def _write(path: Path, size: int, kind: Kind) -> Path:
    rng = random.Random(1)
    generate.write(path, size, (kind.piece(number, rng) for number in itertools.count(1)))
    return path
