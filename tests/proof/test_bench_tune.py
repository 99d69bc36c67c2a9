"""The benchmark of tuning, in small: tpuwatch meets the targets; libtpu's default and doubling do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.proof.bench import tune
from tpuwatch.config import Config
from tpuwatch.tune.planner import bounds_of

if TYPE_CHECKING:
    pass

HOSTS = 120


def missed(policy: tune.Policy) -> set[str]:
    """The targets that a policy does not reach."""
    return {figure.name for figure in tune.judged(tune.Record(policy, HOSTS)) if not figure.reached}


def test_tpuwatch_reaches_every_target() -> None:
    assert missed(tune.tuned) == set()


@pytest.mark.parametrize(
    ("policy", "target"),
    [
        (tune.always_default, "tuning: the same where the default does not do"),
        (tune.double_on_failure, "tuning: launches with more memory than is allowed"),
    ],
)
def test_others_miss_some(policy: tune.Policy, target: str) -> None:
    assert target in missed(policy)


def test_the_bounds_are_those_of_the_configuration() -> None:
    assert bounds_of(Config()) == tune.BOUNDS
