"""The judge's thresholds: ages of answers, graces, durations, all in seconds; and the configured kind of workload."""

from __future__ import annotations

from typing import Final

from tpuwatch.config import Config
from tpuwatch.model import SILENT_TRIES, Signal, WorkloadKind, kind_named

_POLLS = 3  # an answer counts until this many polls are due since
_MIN_ANSWER_SECONDS = 10.0  # however fast the polls are: a slow answer is no silence


class JudgeLimits:
    """The thresholds by a configuration. Never changed."""

    # How old a signal's answer may be to count, of those that the configuration does not pace.
    host_seconds: Final = 60.0
    logs_seconds: Final = 60.0
    probe_seconds: Final = 1800.0  # from its beginning: one takes up to ten minutes
    notices_seconds: Final = 600.0  # they are waited for, not polled
    queued_seconds: Final = 660.0  # two polls, a little late
    server_seconds: Final = 30.0  # three polls
    monitoring_seconds: Final = 600.0  # for the answer and for the sample in it

    silent_tries: Final = SILENT_TRIES  # a node's own tpuwatch that fell silent must have been so over so many attempts
    silent_ahead_seconds: Final = 1800.0  # before the cloud called the node bad; what is older has another cause

    event_seconds: Final = 3600.0  # how old an event of the logs or a symptom of the API may be to count
    transition_seconds: Final = 1800.0  # a node that is coming up for longer than this needs an operator
    repair_seconds: Final = 14_400.0  # a maintenance that goes on for longer than this needs an operator
    ahead_seconds: Final = 3600.0  # a maintenance that begins within this time is under way as good as
    over_seconds: Final = 3600.0  # one whose window ended longer ago than this is over, whatever its status
    again_seconds: Final = 1800.0  # launches that failed within this time are looked at together
    again_count: Final = 3  # so many of them in a row are no accident
    skew_seconds: Final = 60.0  # a time further in the future than this is reported as a fault of a clock

    def __init__(self, config: Config | None = None) -> None:
        """Without a configuration by its defaults."""
        config = config or Config()
        health, peers = config.health, config.peers
        self.workload_kind: WorkloadKind | None = kind_named(config.workload.kind)  # None: by what runs
        self.compile_grace_seconds = config.logs.compile_grace_seconds  # a launch may print and run nothing
        self.idle_seconds = health.idle_seconds  # chips may run nothing under a live program
        self.settle_seconds = health.settle_seconds  # a node must have been bad by the cloud's state
        self.boot_grace_seconds = health.boot_grace_seconds  # after its boot a node is only starting
        self.request_wait_seconds = config.cloud.request_wait_seconds  # of a queued resource; 0: without a limit
        # How old a signal's answer may be to count.
        self.cloud_seconds = _answer_seconds(config.cloud.poll_seconds)
        self.kubernetes_seconds = _answer_seconds(config.kubernetes.poll_seconds)
        self.runtime_seconds = _answer_seconds(config.runtime.poll_seconds)
        self.peer_seconds = _answer_seconds(peers.poll_seconds)
        self.worker_seconds = 2 * self.peer_seconds  # of the own slice, which is asked half as often
        # A node's own tpuwatch that fell silent must have been so for this long: two polls at the least.
        self.silent_seconds = max(peers.silent_seconds, 2 * peers.poll_seconds)
        self.max_compile_seconds = max(7200.0, 2 * health.idle_seconds)  # a busy host compiles no longer than this
        self.step_seconds = min(60.0, health.idle_seconds / 2)  # a chip that ran something within this time is at work
        self.slow_step_seconds = min(300.0, health.idle_seconds / 2)  # … under a program past its compile grace

    def answer_seconds(self, signal: Signal) -> float:
        """Seconds for which an answer of the signal counts."""
        seconds: float = getattr(self, f"{signal.field}_seconds")
        return seconds


def _answer_seconds(poll_seconds: float) -> float:
    return max(_POLLS * poll_seconds, _MIN_ANSWER_SECONDS)
