"""The judge: from the signals to a verdict on each node.

In: the answers of all signals, each with its time.
Out: a judgement with its reasons, contradictions and remedies.
Never: takes what is unknown for bad, or acts.
"""

from tpuwatch.core.lazy import LazyFace

with LazyFace(__name__):
    from tpuwatch.health.judge import judge_node
    from tpuwatch.health.limits import JudgeLimits
    from tpuwatch.health.service import EVERY_SECONDS, JudgeService
