"""The judge's thresholds: ages of answers, graces, durations. All in seconds."""

from __future__ import annotations

from dataclasses import dataclass

_POLLS = 3  # an answer counts until this many polls are due since
_MIN_ANSWER_SECONDS = 10.0  # however fast the polls are: a slow answer is no silence


@dataclass(frozen=True, slots=True)
class JudgeLimits:
    """The thresholds. The first eight are keys of the configuration."""

    compile_grace_seconds: float = 300.0  # a launch may print and run nothing
    idle_seconds: float = 600.0  # chips may run nothing under a live program
    settle_seconds: float = 120.0  # a node must have been bad by the cloud's state
    boot_grace_seconds: float = 300.0  # after its boot a node is only starting
    cloud_poll_seconds: float = 30.0
    runtime_poll_seconds: float = 10.0
    peer_poll_seconds: float = 30.0
    peer_silent_seconds: float = 120.0

    # How old a signal's answer may be to count.
    host_seconds: float = 60.0
    logs_seconds: float = 60.0
    notices_seconds: float = 600.0  # they are waited for, not polled
    monitoring_seconds: float = 600.0  # for the answer and for the sample in it

    silent_tries: int = 3  # a node's own tpuwatch that fell silent must have been so over so many attempts
    silent_ahead_seconds: float = 1800.0  # before the cloud called the node bad; what is older has another cause

    event_seconds: float = 3600.0  # how old an event of the logs or a symptom of the API may be to count
    transition_seconds: float = 1800.0  # a node that is coming up for longer than this needs an operator
    repair_seconds: float = 14_400.0  # a maintenance that goes on for longer than this needs an operator
    ahead_seconds: float = 3600.0  # a maintenance that begins within this time is under way as good as
    over_seconds: float = 3600.0  # one whose window ended longer ago than this is over, whatever its status
    again_seconds: float = 1800.0  # launches that failed within this time are looked at together
    again_count: int = 3  # so many of them in a row are no accident
    skew_seconds: float = 60.0  # a time further in the future than this is reported as a fault of a clock

    # What follows from the configuration.

    @property
    def cloud_seconds(self) -> float:
        """How old the cloud's answer may be to count."""
        return _answer_seconds(self.cloud_poll_seconds)

    @property
    def runtime_seconds(self) -> float:
        """How old the runtime's answer may be to count."""
        return _answer_seconds(self.runtime_poll_seconds)

    @property
    def peer_seconds(self) -> float:
        """How old the answer of a node's own tpuwatch may be to count."""
        return _answer_seconds(self.peer_poll_seconds)

    @property
    def silent_seconds(self) -> float:
        """How long a node's own tpuwatch that fell silent must have been so: two polls at the least."""
        return max(self.peer_silent_seconds, 2 * self.peer_poll_seconds)

    @property
    def max_compile_seconds(self) -> float:
        """A busy host is taken for a compile no longer than this."""
        return max(7200.0, 2 * self.idle_seconds)

    @property
    def step_seconds(self) -> float:
        """A chip that ran something within this time is at work."""
        return min(60.0, self.idle_seconds / 2)

    @property
    def slow_step_seconds(self) -> float:
        """… and within this time under a program that is past its compile grace."""
        return min(300.0, self.idle_seconds / 2)


def _answer_seconds(poll_seconds: float) -> float:
    return max(_POLLS * poll_seconds, _MIN_ANSWER_SECONDS)
