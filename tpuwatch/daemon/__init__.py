"""The daemon: what it wires together, a side for each of logs, node, restarts and tuning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.core.lazy import public_face

if TYPE_CHECKING:
    from tpuwatch.daemon.daemon import Daemon
else:
    __getattr__, __all__ = public_face(
        __name__,
        {
            "daemon": ["Daemon"],
        },
    )
