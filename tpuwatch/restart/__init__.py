"""Restarting what is stuck: a pure policy, a durable ledger, and drivers that anybody can carry on.

In: the judged nodes, and what operators ask for.
Out: restarts, each recorded before it is done; decisions and messages.
Never: leaves a node stopped, or acts without a durable budget.
"""

from tpuwatch.core.lazy import LazyFace

with LazyFace(__name__):
    from tpuwatch.restart.cloud_api import CloudNodeApi
    from tpuwatch.restart.driver import Progress
    from tpuwatch.restart.ledger.owner import has_ended, owner_words
    from tpuwatch.restart.operator.access import LedgerAccess, ledger_problem, open_access
    from tpuwatch.restart.operator.headline import RETRYING, Headline, left, trouble
    from tpuwatch.restart.operator.report import NodeReport, NodeReporter
    from tpuwatch.restart.operator.restarts import (
        LedgerStatus,
        PastRestart,
        RestartState,
        cancel_restart,
        read_history,
        read_status,
        reported_history,
        reported_status,
        reset_breaker,
    )
    from tpuwatch.restart.operator.session import RestartRequest, RestartResult, RestartSession
    from tpuwatch.restart.operator.targets import OwnNode, UsageError, find_own_node, parse_targets
    from tpuwatch.restart.policy.settings import PolicySettings
    from tpuwatch.restart.service import RestartService
    from tpuwatch.restart.wording import action_words, full_name, phase_words
