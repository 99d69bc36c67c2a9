"""Plain data that packages hand each other. Times are seconds since the epoch, sizes bytes.

In: values.
Out: values, and what follows from them alone.
Never: does I/O, reads a clock, or knows a package above.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.core.lazy import public_face

if TYPE_CHECKING:
    from tpuwatch.model.answers import OFF, Answer, Problem, Signal
    from tpuwatch.model.causes import LOOP_FAULTS, Cause, CauseRow, Whose
    from tpuwatch.model.display import Tone, cloud_words, is_bad, queued_words, rank, tone, verdict_words, worst_first
    from tpuwatch.model.documents.daemon import AskedDaemonDocument, DaemonDocument
    from tpuwatch.model.documents.goodput import EstimateDocument, GoodputDocument
    from tpuwatch.model.documents.logs import (
        DiagnoseDocument,
        DiagnosisDocument,
        EventDocument,
        EventsDocument,
        FindingDocument,
        FindingsDocument,
        KnownFindingDocument,
        LaunchDocument,
        LaunchesDocument,
        UnreadDocument,
    )
    from tpuwatch.model.documents.machine import BootDocument, SignalStatusDocument
    from tpuwatch.model.documents.nodes import (
        FailureDocument,
        JudgedQueuedResourceDocument,
        NodeDocument,
        NodesDocument,
        NodeVerdictDocument,
        PeerDocument,
        ReasonDocument,
    )
    from tpuwatch.model.documents.programs import (
        AdviceDocument,
        AdviceResultDocument,
        Flops,
        Gain,
        NotChecked,
        NotCompiled,
        Passage,
        PreflightDocument,
        PreflightResultDocument,
        ProbeAttemptDocument,
        ProbeDifference,
        ProbeHolder,
        ProbeReport,
        ProbeStage,
        Profile,
        ProfiledOperation,
        ProfileFigures,
        ProfileFinding,
        ProgramAdvice,
        Roofline,
        TensorDocument,
        TrialDocument,
        TrialFigures,
    )
    from tpuwatch.model.documents.restarts import (
        AttemptDocument,
        BreakerDocument,
        BreakerResetDocument,
        CancellationDocument,
        DecisionDocument,
        LedgerBreakerDocument,
        LedgerDocument,
        LedgerRestartDocument,
        PastRestartDocument,
        RestartDocument,
        RestartResultDocument,
        RestartsDocument,
    )
    from tpuwatch.model.documents.status import (
        ErrorDocument,
        PeerStatusDocument,
        ReadinessDocument,
        ReadyDocument,
        StatusDocument,
        StatusReportDocument,
        TargetDocument,
        UnknownPathDocument,
    )
    from tpuwatch.model.documents.tune import (
        EnvironmentDocument,
        KeptVariableDocument,
        NextLaunchDocument,
        NextLaunchesDocument,
        OldLogDocument,
        PruneDocument,
        StandingPlanDocument,
        TunedDocument,
        TuneDocument,
        TuneSourceDocument,
    )
    from tpuwatch.model.events import (
        EXEC,
        MAX_PLACES,
        MAX_VALUES,
        CauseConfidence,
        Cursor,
        Event,
        Finding,
        Place,
        Remedy,
        Repetition,
        values_together,
    )
    from tpuwatch.model.goodput import (
        GOODPUT_SECONDS,
        LOST,
        NO_PROCESS,
        STEPPING,
        Estimate,
        Goodput,
        Interruption,
        InterruptionReason,
        NodeSpan,
        NodeSpanKind,
        StepPause,
        StepRun,
        StepSpan,
        TrainingAccount,
        TrainingState,
        shares,
    )
    from tpuwatch.model.judged_node import JudgedNode
    from tpuwatch.model.judged_queued_resource import JudgedQueuedResource, QueuedProblem
    from tpuwatch.model.labels import node_label, split_label
    from tpuwatch.model.launches import CAME_UP, Launch, Outcome
    from tpuwatch.model.placeholders import HOW_TO_FIND, filled_in
    from tpuwatch.model.probe import Probe, ProbeVerdict
    from tpuwatch.model.problems import FINDING_SECONDS, PROBLEM_KINDS, PastFinding, Problems, present_problems
    from tpuwatch.model.progress import (
        HEARTBEATS,
        PacePoint,
        PaceRecord,
        ProgressSource,
        Slowdown,
        SlowdownKind,
        StepReport,
        TrainingLoop,
    )
    from tpuwatch.model.remedies import ProbeStep, RemedyStep
    from tpuwatch.model.restart import (
        ENDED,
        FOR_OPERATOR,
        SWITCHED,
        TOUCHED,
        Attempt,
        Blocked,
        Breaker,
        Claim,
        Fleet,
        Grounds,
        Lease,
        OnMachine,
        Phase,
        ProcessId,
        RestartDecision,
        RestartRecord,
        Target,
        Use,
    )
    from tpuwatch.model.signals import (
        BAD_HEALTH,
        HERE,
        QUEUED_ENDED,
        QUEUED_STATES,
        QUEUED_WAITING,
        WELL_HEALTH,
        Chip,
        CloudNode,
        Evidence,
        Holder,
        Host,
        Identity,
        Known,
        Listener,
        Logs,
        Maintenance,
        Monitoring,
        Notices,
        Peer,
        PeerVerdict,
        QueuedResource,
        Runtime,
        RuntimePort,
        Snapshot,
        Symptom,
    )
    from tpuwatch.model.slices import SILENT_TRIES, Failure, PeerState, Slice, Worker, peer_state
    from tpuwatch.model.status import (
        ADDRESS_FILE,
        DaemonStatus,
        FileProblem,
        FileStatus,
        RestartBudget,
        RestartsStatus,
        ScrapeTarget,
        SignalStatus,
        StoreStatus,
        TunedStatus,
        TuneStatus,
        View,
        ledger_down,
    )
    from tpuwatch.model.tune import (
        DEFAULT_PREMAPPED_BYTES,
        DEFAULT_WORKLOAD,
        DIRECTIONS,
        LAUNCH_VARIABLE,
        PAGE_BYTES,
        SET_VARIABLE,
        SIZE,
        SUMS_VARIABLE,
        THRESHOLD,
        WORKLOAD_PATTERN,
        WORKLOAD_VARIABLE,
        Advice,
        Bounds,
        Fit,
        SizeDecision,
        SizeStep,
        TuneHost,
        TunePlan,
        VariableSetting,
        is_workload,
        workload_of,
    )
    from tpuwatch.model.verdict import (
        BAD,
        DESTRUCTIVE,
        FORGEABLE,
        STUCK,
        WELL,
        Action,
        Confidence,
        Held,
        Judgement,
        Reason,
        Source,
        Unseen,
        Verdict,
        confidence_by,
        fault_sources,
        proven,
    )
    from tpuwatch.model.workload import KIND_VARIABLE, ModelServer, WorkloadKind, kind_named
else:
    __getattr__, __all__ = public_face(__name__, __file__)
