"""The daemon: it makes the services, turns the loop, and obeys signals and systemd.

In: the configuration.
Out: services that are connected, and one view of them for HTTP.
Never: judges, decides or stores anything itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.core.lazy import public_face

if TYPE_CHECKING:
    from tpuwatch.daemon.daemon import Daemon
else:
    __getattr__, __all__ = public_face(__name__, __file__)
