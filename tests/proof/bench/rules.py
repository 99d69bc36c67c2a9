"""Sets of rules of a given size, to see what more rules cost."""

from __future__ import annotations

import dataclasses
from itertools import islice, product
from typing import TYPE_CHECKING

from tpuwatch.logs.rules.catalogue import load_catalogue

if TYPE_CHECKING:
    from pathlib import Path

    from tpuwatch.logs.rules.catalogue import Catalogue, Rule

FEW = 20
_ALWAYS = "premapped-exhausted"  # what the logs here hold
_VERBS = ("allocate", "reserve", "pin", "attach", "launch", "dispatch", "resolve", "reach", "drain", "unload", "load")
_THINGS = (
    "host transfer buffer", "infeed queue", "barrier core", "ICI link", "launch group", "program cache", "trace buffer",
    "scalar unit", "sparse core", "DMA engine", "PCIe window", "megascale channel", "semaphore pool", "topology file",
    "remote worker", "checkpoint shard", "telemetry socket", "interrupt vector", "page table", "power domain",
    "clock source", "vector lane", "collective group", "session key", "debug port", "metadata cache", "kernel queue",
    "memory bank",
)  # fmt: skip
_RULE = """
[[rule]]
id = "bench-{number}"
cause = "driver_error"
summary = "A {thing} gave up[[ after {{waited_seconds}}]]."
match = [
  'Failed to {verb} (?:the |a )?{thing} of chip [0-9]+: [A-Z_]+',
  '(?i)(?:could not|cannot|unable to) {verb} {thing}s?\\b[^\\n]{{0,80}}(?:timed out|not available)',
  '{thing} [0-9]+ (?:lost|stalled) while it was to {verb}',
]
capture = ['after (?P<waited_seconds>{{SECONDS}})']
"""


def made_up(count: int, directory: Path) -> tuple[Rule, ...]:
    """That many rules such as people write, all alike but for a built-in one, which has events in the logs here."""
    pairs = islice(product(_VERBS, _THINGS), count - 1)
    text = "".join(_RULE.format(number=i, verb=verb, thing=thing) for i, (verb, thing) in enumerate(pairs))
    (directory / "bench.toml").write_text(text)
    loaded = load_catalogue([directory])
    if loaded.refused:
        raise loaded.refused[0]
    return tuple(rule for rule in loaded.rules if rule.id.startswith("bench-") or rule.id == _ALWAYS)


def few(catalogue: Catalogue) -> list[Rule]:
    """FEW of the built-in rules with a single pattern each."""
    rules = sorted(catalogue.rules, key=lambda rule: rule.id != _ALWAYS)[:FEW]
    return [dataclasses.replace(rule, match=rule.match[:1]) for rule in rules]
