"""Subjects of advice, made by hand: what the compiler and the counts would say of a program."""

from __future__ import annotations

from typing import Any

from tpuwatch.advise import Placed, Subject
from tpuwatch.program import Trial, laid_out, parse_tensor

GIB = 1 << 30


def row(m: int, n: int, k: int, *, batch: int = 1, count: int = 1, passes: int = 1) -> dict[str, Any]:
    """A product as it is counted."""
    flops, moved = 2 * batch * m * n * k, 2 * batch * (m * k + k * n + m * n)
    sides = {"m": m, "n": n, "k": k, "batch": batch, "flops": flops, "bytes": moved, "passes": passes}
    output = f"bf16[{batch},{m},{n}]"
    return {"op": "dot_general", "inputs": [], "output": output, "count": count, "place": None, **sides}


def reads(weights: str, one: dict[str, Any]) -> dict[str, Any]:
    """The product with these weights as an operand."""
    return {**one, "inputs": [weights]}


def graph(*rows: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Counts with these products."""
    counts = {
        "matrix_flops": sum(one["flops"] * one["count"] for one in rows),
        "vector_flops": 0,
        "moved_bytes": sum(one["bytes"] * one["count"] for one in rows),
        "operations": list(rows),
        "broadcasts": [],
        "not_counted": {},
        "host_calls": {},
    }
    return {**counts, **more}


def trial(needed: float = 4.0, *, counts: Any = None, **more: Any) -> Trial:
    """A trial that needs so many GiB of 16."""
    figures: dict[str, Any] = {
        "fits": needed <= 16,
        "batch": 64,
        "needed_bytes": int(needed * GIB),
        "available_bytes": 16 * GIB,
        "devices": 1,
        "device_kind": "TPU v5 lite",
        "sharded": False,
        "trace_seconds": 0.1,
        "compile_seconds": 1.0,
        "arguments_bytes": 1 * GIB,
        "outputs_bytes": 1 * GIB,
        "temporaries_bytes": int((needed - 1) * GIB),
        "graph": counts,
    }
    return Trial(**{**figures, **more})


def placed(text: str, part: str = "weights", count: int = 1, batch_side: int | None = None) -> Placed:
    """A tensor, laid out as it stands."""
    tensor, order = parse_tensor(text)
    return Placed(text, part, laid_out(tensor, order), count, batch_side)


def subject(*tensors: Placed, generation: str = "v5e", chips: int = 8, batch: int | None = 64, **more: Any) -> Subject:
    """A program on 8 chips."""
    return Subject(generation, chips, tensors, batch, **more)
