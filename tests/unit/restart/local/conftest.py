"""A machine whose processes do what a test says."""

from __future__ import annotations

import pytest

from tests.unit.restart.local.machine import Desk


@pytest.fixture
def context() -> Desk:
    return Desk()
