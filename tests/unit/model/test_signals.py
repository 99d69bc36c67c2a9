"""What the signals of a machine add up to."""

from __future__ import annotations

import pytest

from tpuwatch.model.signals import Chip, Runtime, RuntimePort


@pytest.mark.parametrize(("used", "total"), [((), None), ((5, None), None), ((5, 7), 12), ((0,), 0)])
def test_hbm_in_use_is_known_if_all_chips_say_theirs(used: tuple[int | None, ...], total: int | None) -> None:
    ports = tuple(RuntimePort(8431 + at, (Chip(str(at), one),)) for at, one in enumerate(used))
    assert Runtime(ports).hbm_used_bytes == total
