"""Facts and where they must show: a row for each stage and fact. A view or a stage more is one word or one row more."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from tests.proof.first_hour.machine import Shown
from tests.proof.first_hour.views import as_read
from tpuwatch.core import format_size

STATUS: Final = "status.80 status.160 status status-v"
DAEMON: Final = f"{STATUS} top page api.status"
FINDING: Final = "events api.findings api.events metrics diagnose exec"
NODE: Final = "nodes nodes.problems api.nodes metrics alerts"


@dataclass(frozen=True)
class Row:
    """`says` holds values that the story has learned, as {pid}; alternatives are separated by |.

    `where` are the views that must show it, as patterns; `silent` those that must not.
    """

    stage: str
    fact: str
    says: str
    where: str = ""
    silent: str = ""


UNJUDGED: Final = "before the first verdict"
TRAINING: Final = "a job trains"
EVALUATING: Final = "it evaluates and writes a checkpoint"
OUT_OF_HBM: Final = "it runs out of HBM"
UNLOGGED: Final = "a failure that the job's output alone tells of"
TOO_SMALL: Final = "a premapped buffer that is too small"
TUNED: Final = "the next launch, tuned"
HANGS: Final = "a job that hangs"
LIES: Final = "a node that lies"
DEAD: Final = "a node that the API calls dead"
BLIND: Final = "the API is lost while a node is bad"
RESTARTED: Final = "a person has restarted it"
HEALED: Final = "the daemon restarts the next one"
MOVED: Final = "a reload has changed the address"

ROWS: Final = (
    Row(UNJUDGED, "nothing is said to be well", "No node is judged yet", f"{DAEMON} nodes"),
    Row(UNJUDGED, "nothing is said to be well", "Nothing is wrong", silent=f"{DAEMON} nodes*"),
    Row(TRAINING, "nothing is wrong", "Nothing is wrong", DAEMON),
    Row(TRAINING, "the step", "step {step}", f"{STATUS} top page"),
    Row(TRAINING, "the step", "step: {step}|workload_step {step}.0", "api.status metrics"),
    Row(TRAINING, "that it has ended", "ended|Last training", silent=f"{STATUS} top page"),
    Row(TRAINING, "an alert", "alertname", silent="alerts"),
    Row(EVALUATING, "nothing is wrong", "Nothing is wrong", DAEMON),
    Row(EVALUATING, "an alert", "alertname", silent="alerts"),
    Row(OUT_OF_HBM, "the cause", "hbm_oom_compile", f"{DAEMON} {FINDING}"),
    Row(OUT_OF_HBM, "how much is needed", "20.0G|20 GiB|21474836480", f"{STATUS} page api.findings diagnose exec"),
    Row(UNLOGGED, "the cause", "vmem_oom", f"{STATUS} top page events api.findings api.events exec"),
    Row(UNLOGGED, "how much is needed", "20.00M|20 MiB|20971520", f"{STATUS} page api.findings exec"),
    Row(UNLOGGED, "that it is one", 'events_total{{cause="vmem_oom"}} 1.0', "metrics"),
    Row(UNLOGGED, "that what libtpu logs is one", 'events_total{{cause="hbm_oom_compile"}} 1.0', "metrics"),
    Row(TOO_SMALL, "the cause", "premapped_exhausted", f"{DAEMON} {FINDING}"),
    Row(TOO_SMALL, "the one size", "{size}", f"{STATUS} top page tune api.tune api.findings diagnose exec"),
    Row(TOO_SMALL, "the command that failed", "exec -- tpuwatch sim launch --need {need}", "exec"),
    Row(TUNED, "the one size", "{size}", "tune top api.tune api.launches page"),
    *(Row(stage, "the size as before", "{size}", "tune top api.tune page") for stage in (HANGS, LIES, DEAD, HEALED)),
    Row(HANGS, "the verdict", "job_stuck|TpuwatchJobStuck", f"{DAEMON} {NODE} nodes.own"),
    Row(HANGS, "the command with its PID", "kill {pid}", f"{STATUS} page api.nodes nodes.own"),
    Row(LIES, "the verdict", "{verdict}|TpuwatchRuntimeStuck", f"{DAEMON} {NODE} nodes.own"),
    Row(LIES, "the command with its PID", "kill -9 {pid}", f"{STATUS} page api.nodes nodes.own"),
    Row(DEAD, "the verdict", "{verdict}|TpuwatchNodeStuck", f"{DAEMON} {NODE} nodes.other page.other"),
    Row(DEAD, "the command", "tpuwatch restart us-central2-b/train-2", "api.nodes nodes.other page.other"),
    Row(DEAD, "where the command is", 'tpuwatch nodes us-central2-b/train-2|href="/?node=train-2', f"{STATUS} top"),
    Row(BLIND, "the last verdict", "{verdict}|TpuwatchNodeStuck", f"{DAEMON} {NODE} nodes.other page.other"),
    Row(BLIND, "that it is not fresh", "last known|last_known", f"{STATUS} page* nodes nodes.other api.nodes metrics"),
    Row(BLIND, "why", "denied|PERMISSION_DENIED|TpuwatchSignalFailing", f"{DAEMON} alerts"),
    Row(RESTARTED, "nothing is wrong", "Nothing is wrong", DAEMON),
    Row(RESTARTED, "an alert", "alertname", silent="alerts"),
    Row(RESTARTED, "how it went", "not verified|not_verified", "restarts api.restarts page restart"),
    Row(HEALED, "nothing is wrong", "Nothing is wrong", DAEMON),
    Row(HEALED, "an alert", "alertname", silent="alerts"),
    Row(HEALED, "which node", "train-3", "restarts api.restarts top page"),
    Row(HEALED, "that it was done", 'action="restart_node",result="done"}} 1.0', "metrics"),
    Row(MOVED, "nothing is wrong", "Nothing is wrong", DAEMON),
    Row(MOVED, "an alert", "alertname", silent="alerts"),
)


def missing(stage: str, shown: Mapping[str, Shown], known: Mapping[str, object]) -> Iterator[str]:
    """Facts that a view does not show, or shows and must not."""
    read = {name: as_read(name, view) for name, view in shown.items()}
    for row in ROWS:
        if row.stage != stage:
            continue
        pattern = "|".join(_form(one, known) for one in row.says.split("|"))
        for name in _views(row.where, read):
            if not re.search(pattern, read[name]):
                yield f"{name} does not show {row.fact} ({pattern}): {read[name][:900]}"
        for name in _views(row.silent, read):
            if re.search(pattern, read[name]):
                yield f"{name} shows that {row.fact} ({pattern}): {read[name][:900]}"


def _views(patterns: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns.split())]


def _form(text: str, known: Mapping[str, object]) -> str:
    """As a pattern. A size is shown in bytes or for people; * is anything within a word."""
    if text == "{size}":
        size = int(str(known["size"]))
        return rf"\b(?:{size}|{re.escape(format_size(size))})\b"
    return re.escape(text.format(**known)).replace(r"\*", r"[^\s}]*")
