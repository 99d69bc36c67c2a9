"""Text in documents that is a value of an enum. A newer tpuwatch may say others, which readers show as they are."""

from __future__ import annotations

from typing import Annotated

from tpuwatch.core import Words
from tpuwatch.model.causes import Cause
from tpuwatch.model.judged_queued_resource import QueuedProblem
from tpuwatch.model.signals import Problem, Signal
from tpuwatch.model.slices import PeerState
from tpuwatch.model.verdict import Action, Confidence, Source, Verdict
from tpuwatch.model.workload import WorkloadKind

ActionWord = Annotated[str, Words(Action)]
CauseWord = Annotated[str, Words(Cause)]
ConfidenceWord = Annotated[str, Words(Confidence)]
KindWord = Annotated[str, Words(WorkloadKind)]
ProblemWord = Annotated[str, Words(Problem)]
QueuedProblemWord = Annotated[str, Words(QueuedProblem)]
SignalWord = Annotated[str, Words(Signal)]
SourceWord = Annotated[str, Words(Source)]
VerdictWord = Annotated[str, Words(Verdict)]
PeerWord = Annotated[str, Words(PeerState)]
