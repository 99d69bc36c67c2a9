"""From when on what is seen counts: ages of answers, graces, thresholds. All in seconds."""

from __future__ import annotations

from dataclasses import dataclass

_POLLS = 3  # an answer counts until this many polls are due since
_LEAST_ANSWER_SECONDS = 10.0  # however fast the polls are: a slow answer is no silence


@dataclass(frozen=True, slots=True)
class Limits:
    """What `judge` goes by. The first four are keys of the configuration."""

    compile_grace_seconds: float = 300.0  # a launch may say and run nothing
    idle_seconds: float = 600.0  # chips may run nothing under a live program
    settle_seconds: float = 120.0  # a node must have been bad by the cloud's word
    boot_grace_seconds: float = 300.0  # after its boot a node is only starting

    # How old a witness's answer may be to count.
    cloud_seconds: float = 90.0
    runtime_seconds: float = 30.0
    host_seconds: float = 60.0
    logs_seconds: float = 60.0
    notices_seconds: float = 600.0  # they are waited for, not polled
    monitoring_seconds: float = 600.0  # for the answer and for the sample in it
    agent_seconds: float = 90.0  # for the answer, and for the word of a node's own tpuwatch that is silent since

    silent_seconds: float = 120.0  # a node's own tpuwatch that fell silent must have been so long
    silent_tries: int = 3  # … and over so many attempts
    silent_ahead_seconds: float = 1800.0  # before the cloud called the node bad; what is older has another cause

    event_seconds: float = 3600.0  # how old an event of the logs or a symptom of the API may be to count
    step_seconds: float = 60.0  # a chip that ran something within this time is at work
    slow_step_seconds: float = 300.0  # … and within this time under a program that is past its compile grace
    longest_compile_seconds: float = 7200.0  # a busy host is taken for a compile no longer than this
    transition_seconds: float = 1800.0  # a node that is coming up for longer than this needs a person
    repair_seconds: float = 14_400.0  # a maintenance that goes on for longer than this needs a person
    ahead_seconds: float = 3600.0  # a maintenance that begins within this time is under way as good as
    over_seconds: float = 3600.0  # one whose window ended longer ago than this is over, whatever its status says
    again_seconds: float = 1800.0  # launches that failed within this time are looked at together
    again_count: int = 3  # so many of them in a row are no accident
    skew_seconds: float = 60.0  # a time further in the future than this is told as a fault of a clock

    @classmethod
    def of(
        cls,
        *,
        compile_grace_seconds: float = 300.0,
        idle_seconds: float = 600.0,
        settle_seconds: float = 120.0,
        boot_grace_seconds: float = 300.0,
        cloud_poll_seconds: float = 30.0,
        runtime_poll_seconds: float = 10.0,
        agent_poll_seconds: float = 30.0,
        silent_seconds: float = 120.0,
    ) -> Limits:
        """The limits that follow from the configuration: [health], [logs], [agents] and the poll intervals."""
        return cls(
            compile_grace_seconds=compile_grace_seconds,
            idle_seconds=idle_seconds,
            settle_seconds=settle_seconds,
            boot_grace_seconds=boot_grace_seconds,
            cloud_seconds=max(_POLLS * cloud_poll_seconds, _LEAST_ANSWER_SECONDS),
            runtime_seconds=max(_POLLS * runtime_poll_seconds, _LEAST_ANSWER_SECONDS),
            agent_seconds=max(_POLLS * agent_poll_seconds, _LEAST_ANSWER_SECONDS),
            silent_seconds=max(silent_seconds, 2 * agent_poll_seconds),
            longest_compile_seconds=max(7200.0, 2 * idle_seconds),
            step_seconds=min(60.0, idle_seconds / 2),
            slow_step_seconds=min(300.0, idle_seconds / 2),
        )
