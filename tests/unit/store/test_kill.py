"""SIGKILL at any moment: an event and the offset that it was read up to are both there, or neither is."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tpuwatch.store import EventStore

if TYPE_CHECKING:
    from pathlib import Path

    from tpuwatch.core.clock import ManualClock

KILLS = 12

# Goes on at the stored offset, one event per byte of an endless file, and says each offset only after its commit.
WRITER = """
import sys
from pathlib import Path
from tests.unit.store.make import cursor, event
from tpuwatch.core.clock import ManualClock
from tpuwatch.store import EventStore

store = EventStore.open(Path(sys.argv[1]), ManualClock())
offset = max((one.offset for one in store.cursors()), default=0)
while True:
    batch = [event(str(offset + n), offset=offset + n, text="x" * 200) for n in range(37)]
    assert len(store.commit(batch, [cursor(offset + 37)])) == 37
    offset += 37
    if offset % 5 == 0:
        store.prune(1e9, 1 << 40)
    print(offset, flush=True)
"""


@pytest.mark.slow
def test_nothing_is_lost_or_doubled(tmp_path: Path, clock: ManualClock) -> None:
    printed = 0
    for kill in range(KILLS):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            for _ in range(1 + kill * 3):
                printed = int(writer.stdout.readline())
            writer.kill()
            rest = writer.stdout.read().split(b"\n")[:-1]
            printed = int(rest[-1]) if rest else printed
        store = EventStore.open(tmp_path, clock)
        (reached,) = (one.offset for one in store.cursors())
        assert reached in (printed, printed + 37)
        offsets = [one.offset for one in store.events(after_id=0, limit=1_000_000)]
        assert offsets == list(range(reached))
        assert store.notices == ()
        store.close()
