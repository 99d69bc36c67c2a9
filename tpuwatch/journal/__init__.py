"""The one durable store on a machine: what was recognised, which launches there were, how far each file is read.

`Journal` is the daemon's: it locks the state directory and writes. `JournalReader` reads beside it, without the lock.
"""

from __future__ import annotations

from tpuwatch.journal.reader import JournalReader
from tpuwatch.journal.store import Journal

__all__ = ["Journal", "JournalReader"]
