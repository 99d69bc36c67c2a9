"""Remedies name the framework that a text shows, or none."""

from __future__ import annotations

import pytest

from tpuwatch.logs.rules.catalogue import load_catalogue
from tpuwatch.logs.rules.frameworks import FRAMEWORKS

RULES = load_catalogue().rules


@pytest.mark.parametrize("name", [*FRAMEWORKS, ""])
def test_no_remedy_has_the_words_of_another_framework(name: str) -> None:
    others = {word for other, words in FRAMEWORKS.items() if other != name for word in words.values()}
    steps = [step.do for rule in RULES for step in rule.remedy_for({}, [name])]
    assert [step for step in steps if any(word in step for word in others)] == []
    assert [step for step in steps if "{" in step] == []


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_each_word_is_in_a_remedy(name: str) -> None:
    steps = " ".join(step.do for rule in RULES for step in rule.remedy_for({}, [name]))
    assert [word for word in FRAMEWORKS[name].values() if word not in steps] == []
