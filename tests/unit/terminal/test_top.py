"""What `tpuwatch top` prints of one daemon."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

from tests.unit.restart.records import NOW, record
from tests.unit.web import samples
from tpuwatch.model.restart import Attempt, Phase, RestartRecord
from tpuwatch.model.status import RestartsStatus
from tpuwatch.model.verdict import Action
from tpuwatch.terminal.console import Console
from tpuwatch.terminal.top import print_recent_restarts
from tpuwatch.web.routes import restarts_document


def restarts_text(*records: RestartRecord) -> list[str]:
    stream = io.StringIO()
    restarts = restarts_document(RestartsStatus(acts=True, records=records), NOW + 60, 10)
    documents: Any = SimpleNamespace(restarts=samples.received(restarts))
    print_recent_restarts(Console(stream, width=80), documents)
    return stream.getvalue().splitlines()


def test_each_restart_is_one_line_whether_it_is_under_way_or_has_ended() -> None:
    ended = Attempt(Action.RESTART_NODE, "node_stuck", NOW - 60, NOW, Phase.DONE, 1, "joe@vm", "It hung.")
    over = record("train-1", phase=Phase.DONE, cause="node_stuck", actor="joe@vm", began=NOW - 60, history=(ended,))
    again = record("train-2", phase=Phase.STOPPING, began=NOW, history=(ended,))
    assert restarts_text(over, again)[1:] == [
        "1m ago  train-2: restart_node stopping (operator), by someone@vm-1",
        "2m ago  train-2: restart_node done (node_stuck), by joe@vm",
        "2m ago  train-1: restart_node done (node_stuck), by joe@vm",
    ]
