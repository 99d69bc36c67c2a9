"""A case is replayed by the daemon's own code: what is printed of it."""

from __future__ import annotations

import json
import random

from tests.proof.pace.replay import replay


def case(slower: float, *, tenth: bool = False, tokens: float = 0.0) -> list[str]:
    """A launch whose steps of 5 s become slower after an hour and are as before after another."""
    rng, lines, at = random.Random(3), [{"type": "slice", "workers": 1, "chips_per_worker": 4, "workload": "w"}], 0.0
    lines.append({"type": "launch", "at": 0.0, "launch": "one"})
    for step in range(1, 2400):
        longer = 1 + slower if 3600 < at < 7200 else 1.0
        at += 5.0 * longer * (1 + rng.gauss(0.0, 0.005))
        line = {"type": "step", "at": at, "step": step, "worker": 0}
        if tokens:
            line["tokens"] = 1e6 * (longer if tokens > 1 else 1)
        if not tenth or step % 10 == 0:
            lines += [line] * (2 if step % 50 == 0 else 1)
        if step % 97 == 0:
            lines += [{"type": "step", "at": "NaN", "step": None}, {"type": "sample", "at": at, "worker": 0}]
    return [*map(json.dumps, lines), "no JSON", "[]"]


def said(lines: list[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in replay(lines)]


def test_a_slow_down_is_printed_when_it_is_told_and_when_it_is_over() -> None:
    for tenth in (False, True):
        for tokens in (0.0, 1.0):
            told, over = said(case(0.15, tenth=tenth, tokens=tokens))
            assert (told["kind"], told["gradual"], told["over"], told["worker"]) == ("slow", False, None, None)
            assert abs(float(str(told["onset"])) - 3600) < 120
            assert float(str(told["at"])) < 3600 + 15 * 60
            assert abs(float(str(told["slower"])) - 0.15) < 0.02
            assert 7200 < float(str(over["over"])) < 7200 + 15 * 60


def test_longer_sequences_are_not_printed() -> None:
    assert said(case(0.5, tokens=2.0)) == []
