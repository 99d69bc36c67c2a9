"""What commands print for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.core.lazy import public_face

if TYPE_CHECKING:
    from tpuwatch.terminal import findings, tune
    from tpuwatch.terminal.advise import print_advice
    from tpuwatch.terminal.console import Console, print_text
    from tpuwatch.terminal.findings import describe_launch, print_finding, print_findings
    from tpuwatch.terminal.node import print_machine, print_node, print_nodes, print_other_nodes
    from tpuwatch.terminal.plot_png import save
    from tpuwatch.terminal.preflight import print_preflight
    from tpuwatch.terminal.restart import RestartDisplay
    from tpuwatch.terminal.restarts import print_restart_history, print_restarts
    from tpuwatch.terminal.status import print_status, print_whole_status
else:
    __getattr__, __all__ = public_face(
        __name__,
        {
            "advise": ["print_advice"],
            "console": ["Console", "print_text"],
            "findings": ["describe_launch", "print_finding", "print_findings"],
            "node": ["print_machine", "print_node", "print_nodes", "print_other_nodes"],
            "plot_png": ["save"],
            "preflight": ["print_preflight"],
            "restart": ["RestartDisplay"],
            "restarts": ["print_restart_history", "print_restarts"],
            "status": ["print_status", "print_whole_status"],
        },
        submodules=["findings", "tune"],
    )
