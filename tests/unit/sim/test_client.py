from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.standins.runtime_server import refused
from tpuwatch.core.errors import TpuwatchError
from tpuwatch.sim.client import Client
from tpuwatch.sim.directory import INFO


@pytest.mark.parametrize("address", ["127.0.0.1:x", "a b:1", "", "127.0.0.1:{port}"])
def test_a_simulator_that_was_killed_and_left_its_note_or_a_note_without_an_address(
    tmp_path: Path, address: str
) -> None:
    with refused() as port:
        (tmp_path / INFO).write_text(json.dumps({"control": address.format(port=port)}))
        with pytest.raises(TpuwatchError, match=r"does not answer at .*start one with `tpuwatch sim`"):
            Client(tmp_path).state()
