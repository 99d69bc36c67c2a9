"""The peer: Debian's mtail, with a program made of the same rules."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

from tests.proof.bench.processes import best, processor_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tpuwatch.logs.rules.catalogue import Rule

PROGRAM = shutil.which("mtail")
MAX_SECONDS = 900.0


def program(rules: Iterable[Rule]) -> str:
    """One block for each pattern, which counts by cause or mark; what else rules say (unless, captures) is left out."""
    blocks = (
        _block(pattern, rule.cause.value if rule.cause else str(rule.mark)) for rule in rules for pattern in rule.match
    )
    return "counter events by cause\n\n" + "\n".join(blocks)


def speed(log: Path, rules: Iterable[Rule], scratch: Path, *, counts: bool = True) -> float:
    """Megabytes that mtail reads in a second of the processor; its start-up and compilation are taken off.

    `counts`: the log has events. Raises RuntimeError if mtail counts none then.
    """
    path = scratch / "rules.mtail"
    path.write_text(program(rules), encoding="utf-8")
    empty = scratch / "empty.log"
    empty.write_bytes(b"")
    start_up, _ = best(lambda: _run(path, empty))
    seconds, counted = best(lambda: _run(path, log))
    if counts and counted == 0:
        raise RuntimeError(f"mtail has counted nothing in {log}: the program in {path} is wrong")
    reading = max(seconds - start_up, 0.001)  # of a log so short that only start-up is measured
    return log.stat().st_size / reading / 1e6


def _block(pattern: str, name: str) -> str:
    written = pattern.replace("/", r"\/").replace("\n", r"\n")
    return f'/{written}/ {{\n  events["{name}"]++\n}}\n'


def _run(program: Path, log: Path) -> tuple[float, int]:
    """Seconds of the processor it took, and how many events were counted."""
    command = [PROGRAM or "mtail", "-one_shot", "-one_shot_format", "json", "-progs", str(program), "-logs", str(log)]
    seconds, output = processor_seconds(command, timeout=MAX_SECONDS)
    return seconds, _counted(json.loads(output or b"[]"))


def _counted(document: object) -> int:
    """All values of the counter in mtail's own form of output."""
    if isinstance(document, dict):
        value = document.get("Value")
        return int(value) if isinstance(value, int) else sum(map(_counted, document.values()))
    return sum(map(_counted, document)) if isinstance(document, list) else 0
