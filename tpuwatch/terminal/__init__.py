"""What commands print for people.

In: plain data, and JSON documents of daemons.
Out: lines for a terminal of any width, or a pipe.
Never: computes a fact that another view would have to compute again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.core.lazy import public_face

if TYPE_CHECKING:
    from tpuwatch.terminal import findings, top, tune
    from tpuwatch.terminal.advise import print_advice
    from tpuwatch.terminal.console import UNWRAPPED, Console, Lines, print_text, wants_colour
    from tpuwatch.terminal.findings import describe_launch, print_finding, print_findings
    from tpuwatch.terminal.goodput import print_goodput
    from tpuwatch.terminal.node import STYLES, print_machine, print_node, print_nodes, print_other_nodes
    from tpuwatch.terminal.plot_png import save
    from tpuwatch.terminal.preflight import print_preflight
    from tpuwatch.terminal.probe import print_probe
    from tpuwatch.terminal.profile import PROFILE_SHARES, print_profile
    from tpuwatch.terminal.queued_resources import print_queued_resources
    from tpuwatch.terminal.restart import RestartDisplay
    from tpuwatch.terminal.restarts import print_restart_history, print_restarts
    from tpuwatch.terminal.stage_line import StageLine
    from tpuwatch.terminal.status import print_status, print_whole_status
else:
    __getattr__, __all__ = public_face(__name__, __file__)
