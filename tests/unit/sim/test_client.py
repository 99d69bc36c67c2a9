from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.standins.runtime_server import refused
from tpuwatch.core.errors import TpuwatchError
from tpuwatch.sim.client import Client
from tpuwatch.sim.directory import INFO


@pytest.mark.parametrize("address", ["127.0.0.1:x", "a b:1", ""])
def test_a_note_with_an_address_that_is_none(tmp_path: Path, address: str) -> None:
    (tmp_path / INFO).write_text(json.dumps({"control": address}))
    with pytest.raises(TpuwatchError, match=r"does not answer at .*start one with `tpuwatch sim`"):
        Client(tmp_path).state()


def test_a_simulator_that_was_killed_and_left_its_note(tmp_path: Path) -> None:
    with refused() as port:
        (tmp_path / INFO).write_text(json.dumps({"control": f"127.0.0.1:{port}"}))
        with pytest.raises(TpuwatchError, match="does not answer at"):
            Client(tmp_path).clear()
