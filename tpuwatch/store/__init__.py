"""The durable store of a machine: events, launches, verdicts, and how far each file is read.

In: what one turn has read, with its offsets.
Out: one transaction; then rows, for the daemon and for commands.
Never: keeps a part of a transaction, or grows without bound.

`EventStore` is the daemon's: it locks the state directory and writes. `StoreReader` reads it without the lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.core.lazy import public_face

if TYPE_CHECKING:
    from tpuwatch.store.reader import StoreReader
    from tpuwatch.store.schema import FILE_NAME, is_damage
    from tpuwatch.store.store import EventStore
else:
    __getattr__, __all__ = public_face(__name__, __file__)
