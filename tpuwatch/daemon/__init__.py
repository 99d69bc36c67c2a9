"""The daemon: it makes the services, turns the loop, and obeys signals and systemd.

In: the configuration.
Out: services that are connected, and one view of them for HTTP.
Never: judges, decides or stores anything itself.
"""

from tpuwatch.core.lazy import LazyFace

with LazyFace(__name__):
    from tpuwatch.daemon.daemon import Daemon
