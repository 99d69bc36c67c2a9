"""The steps of a verdict as they fit the node: with what is known of it in place of the words in capitals."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tpuwatch.core import printable
from tpuwatch.model import Remedy, RemedyStep, filled_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpuwatch.health.facts import Facts

_MAX_PIDS: Final = 8
# What stands in place of steps that ask the Cloud TPU API, where it does not know the node.
_IN_KUBERNETES: Final = {
    RemedyStep.DESCRIBE: RemedyStep.DESCRIBE_IN_KUBERNETES,
    RemedyStep.MAINTENANCE: RemedyStep.DESCRIBE_IN_KUBERNETES,
}


def remedy(
    steps: tuple[RemedyStep, ...], facts: Facts, pids: tuple[int, ...] = (), worker: int = 0
) -> tuple[Remedy, ...]:
    """The steps with what is known of the node filled in, each once. `pids` are those of the program at fault, `worker`
    the number of the machine."""
    if not steps:
        return ()
    words, held = _words(facts), _held(facts, pids)
    fitting = (_IN_KUBERNETES.get(step, step) if facts.in_kubernetes else step for step in steps)
    forms = (_form(step, held, spot=facts.is_spot) for step in dict.fromkeys(fitting))
    return filled_in(forms, {**words, "PID": " ".join(map(str, held)), "WORKER": str(worker)})


def _form(step: RemedyStep, held: Sequence[int], *, spot: bool) -> Remedy:
    """The step for a spot node, and with a command for each process where it takes only one."""
    do = step.value.do.replace("version=VERSION", "version=VERSION --spot") if spot else step.value.do
    if step is RemedyStep.LOOK and held:
        do = do.replace("holds the TPU", f"holds the TPU ({' '.join(map(str, held))})")
        before, command, after = do.split("`")
        do = before + ", ".join(f"`{command.replace('PID', str(pid))}`" for pid in held) + after
    return replace(step.value, do=do)


def _held(facts: Facts, pids: tuple[int, ...]) -> list[int]:
    """Those of the pids that the host itself has seen: one out of a log's name may be of a container, or made up."""
    return [holder.pid for holder in facts.main_holders if holder.pid in pids][:_MAX_PIDS]


def _words(facts: Facts) -> dict[str, str]:
    node, identity = facts.cloud or facts.evidence.cloud.value, facts.identity
    known = {
        "NODE": (node.name if node else "")
        or identity.node.value
        or identity.kubernetes.value
        or facts.evidence.node.rpartition("/")[2],
        "ZONE": (node.zone if node else "") or identity.zone.value,
        "PROJECT": (node.project if node else "") or identity.project.value,
        "QUEUED_RESOURCE": facts.queued.name if facts.queued else node.queued_resource if node else "",
        "TYPE": (node.accelerator if node else "") or identity.accelerator.value,
        "VERSION": node.runtime_version if node else "",
    }
    return {word: shlex.quote(printable(value).strip()) for word, value in known.items() if value}
