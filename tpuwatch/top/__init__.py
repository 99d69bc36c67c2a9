"""`tpuwatch top`: daemons that are asked again and again, and what they say on a whole screen.

In: addresses of daemons, and keys.
Out: a screen.
Never: changes a daemon or a node.
"""

from tpuwatch.core.lazy import LazyFace

with LazyFace(__name__):
    from tpuwatch.top.daemons import Reading, WatchedDaemon, read_daemon
    from tpuwatch.top.parts import snapshot
    from tpuwatch.top.screen import run_on_screen
    from tpuwatch.top.view import TopView
