"""Accuracy on texts with known labels, which are beside the repository."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.proof.corpus_table import NONE, SHARED, Labelled, corpus, libtpu_runs, second_corpus, table, third_corpus

needs_texts = pytest.mark.skipif(not SHARED.is_dir(), reason="the labelled texts are not beside the repository")


def wrong(texts: list[Labelled]) -> list[str]:
    return [line for line in table(texts) if line.startswith("  wrong")]


@needs_texts
@pytest.mark.parametrize(("posted", "share"), [(corpus, 0.05), (second_corpus, 0.05), (third_corpus, 0.12)])
def test_the_first_finding_is_right_on_what_people_posted(posted: Callable[[], list[Labelled]], share: float) -> None:
    texts = posted()
    assert len(wrong(texts)) <= share * len(texts), wrong(texts)


@needs_texts
def test_nothing_is_found_where_nothing_is_wrong() -> None:
    texts = [*corpus(), *second_corpus(), *libtpu_runs()]
    assert [text for text in texts if text.accept == (NONE,) and not text.right] == []


@needs_texts
def test_the_first_finding_is_right_on_what_libtpu_wrote() -> None:
    readable = [text for text in libtpu_runs() if (SHARED / "libtpu-logs" / text.name).stat().st_size]
    assert wrong(readable) == []
