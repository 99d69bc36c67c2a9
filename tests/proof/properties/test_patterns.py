"""The search for patterns changes no match: on the texts of the corpus, real logs, and many mixtures of examples."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.paths import SHARED
from tests.unit.logs.parse.test_patterns import CATALOGUE, compare, texts
from tpuwatch.logs.parse.scan import Scanner

needs_texts = pytest.mark.skipif(not SHARED.is_dir(), reason="the real texts are not beside the repository")


def real_texts() -> Iterator[bytes]:
    for pattern in ("corpus*/texts/*", "libtpu-logs/*/*/logs/*", "libtpu-logs/*/*/stderr"):
        yield from (path.read_bytes() for path in sorted(SHARED.glob(pattern)))


@pytest.fixture(scope="module")
def scanner() -> Scanner:
    compiled = Scanner(CATALOGUE, background=lambda _: None)
    compiled.compile_patterns()
    return compiled


@pytest.mark.long
@needs_texts
@pytest.mark.parametrize("patterns_first", [False, True])
def test_in_real_texts(scanner: Scanner, monkeypatch: pytest.MonkeyPatch, *, patterns_first: bool) -> None:
    compare(scanner, real_texts(), monkeypatch, random.Random(7), patterns_first=patterns_first)


@pytest.mark.parametrize("patterns_first", [False, True])
def test_in_mixtures_of_examples(scanner: Scanner, monkeypatch: pytest.MonkeyPatch, *, patterns_first: bool) -> None:
    rng = random.Random(20261122)
    compare(scanner, texts(rng, 60), monkeypatch, rng, patterns_first=patterns_first)
