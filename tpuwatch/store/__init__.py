"""The durable store of a machine: events, launches, verdicts, and how far each file is read.

In: what one turn has read, with its offsets.
Out: one transaction; then rows, for the daemon and for commands.
Never: keeps a part of a transaction, or grows without bound.

`EventStore` is the daemon's: it locks the state directory and writes. `StoreReader` reads it without the lock.
"""

from tpuwatch.core.lazy import LazyFace

with LazyFace(__name__):
    from tpuwatch.store.reader import StoreReader
    from tpuwatch.store.schema import FILE_NAME, is_damage
    from tpuwatch.store.store import EventStore
