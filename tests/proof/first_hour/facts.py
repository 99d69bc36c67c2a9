"""What must show where: a row for each stage and each fact. A view or a stage more is one word or one row more."""

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


UNJUDGED, TRAINING, EVALUATING, OUT_OF_HBM, TOO_SMALL, TUNED, HANGS, LIES, RESTARTED, BLIND, MOVED = (
    "before the first verdict",
    "a job trains",
    "it evaluates and writes a checkpoint",
    "it runs out of HBM",
    "a premapped buffer that is too small",
    "the next launch, tuned",
    "a job that hangs",
    "a node that lies",
    "a node was restarted",
    "the API is lost while a node is bad",
    "a reload has changed the address",
)

ROWS: Final = (
    Row(UNJUDGED, "nothing is said to be well", "No node is judged yet", DAEMON),
    Row(UNJUDGED, "nothing is said to be well", "Nothing is wrong", silent=f"{DAEMON} nodes*"),
    Row(TRAINING, "nothing is wrong", "Nothing is wrong", DAEMON),
    Row(TRAINING, "the step", "step {step}", f"{STATUS} top page"),
    Row(TRAINING, "the step", "step: {step}|_step{{*}} {step}.0", "api.status metrics"),
    Row(TRAINING, "that it runs", "ended|Last training", silent=f"{STATUS} top page"),
    Row(TRAINING, "no alert", "alertname", silent="alerts"),
    Row(EVALUATING, "nothing is wrong", "Nothing is wrong", DAEMON),
    Row(EVALUATING, "no alert", "alertname", silent="alerts"),
    Row(OUT_OF_HBM, "the cause", "hbm_oom_compile", f"{DAEMON} events api.findings api.events metrics diagnose exec"),
    Row(OUT_OF_HBM, "how much is needed", "20.0G|20 GiB|21474836480", f"{STATUS} page api.findings diagnose exec"),
    Row(
        TOO_SMALL, "the cause", "premapped_exhausted", f"{DAEMON} events api.findings api.events metrics diagnose exec"
    ),
    Row(TOO_SMALL, "the one size", "{size}", f"{STATUS} page tune api.tune api.findings diagnose exec"),
    Row(TUNED, "the one size", "{size}", "tune api.tune api.launches page"),
    Row(HANGS, "the verdict", "job_stuck", f"{DAEMON} nodes nodes.own api.nodes metrics alerts"),
    Row(HANGS, "its PID", "{pid}", f"{STATUS} page api.nodes nodes.own"),
    Row(LIES, "the verdict", "{verdict}", f"{DAEMON} nodes nodes.own api.nodes metrics alerts"),
    Row(LIES, "the command", "tpuwatch restart", f"{STATUS} page nodes.own api.nodes"),
    Row(BLIND, "the last verdict", "{verdict}", f"{DAEMON} nodes nodes.own api.nodes metrics alerts"),
    Row(BLIND, "that it is not fresh", "last known|last_known", f"{STATUS} page nodes.own api.nodes"),
    Row(MOVED, "the last verdict", "{verdict}", f"{DAEMON} nodes nodes.own api.nodes metrics"),
)


def missing(stage: str, shown: Mapping[str, Shown], known: Mapping[str, object]) -> Iterator[str]:
    """What a view does not show, or shows and must not."""
    read = {name: as_read(name, view) for name, view in shown.items()}
    for row in ROWS:
        if row.stage != stage:
            continue
        pattern = "|".join(_form(one, known) for one in row.says.split("|"))
        for name in _views(row.where, read):
            if not re.search(pattern, read[name]):
                yield f"{name} does not show {row.fact} ({pattern}): {read[name][:300]}"
        for name in _views(row.silent, read):
            if re.search(pattern, read[name]):
                yield f"{name} shows that {row.fact} ({pattern}): {read[name][:300]}"


def _views(patterns: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns.split())]


def _form(text: str, known: Mapping[str, object]) -> str:
    """As a pattern. A size is shown in bytes or for people; * is anything within a word."""
    if text == "{size}":
        size = int(str(known["size"]))
        return rf"\b(?:{size}|{re.escape(format_size(size))})\b"
    return re.escape(text.format(**known)).replace(r"\*", r"[^\s}]*")
