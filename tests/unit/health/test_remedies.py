"""Remedies of verdicts and of rules: their commands are whole, and have the values that are known."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.health.scenes import PID, holder, host, node, own
from tpuwatch.diagnose import RecognisedRecord, fold
from tpuwatch.health.facts import Facts
from tpuwatch.health.limits import JudgeLimits
from tpuwatch.health.remedies import remedy
from tpuwatch.logs.rules.catalogue import Rule, load_catalogue
from tpuwatch.model.events import Event, Remedy
from tpuwatch.model.placeholders import HOW_TO_FIND, filled_in
from tpuwatch.model.progress import HEARTBEATS
from tpuwatch.model.remedies import RemedyStep
from tpuwatch.model.signals import Identity

PACKAGE = Path(__file__).parents[3] / "tpuwatch"
RULES = [rule for rule in load_catalogue().rules if rule.steps]
# What only the reader knows: files and names of their own, and what they start.
OF_THE_READER = {"COMMAND"}
# By what the cloud and the host can know; whose credentials are used, and another zone than the node's, they do not.
KNOWN = {word: f"known-{word.lower()}" for word in HOW_TO_FIND.keys() - {"ACCOUNT", "OTHER_ZONE"}}
WORD = re.compile(r"(?:(?<=[\s=:/])|^)[A-Z][A-Z_]{2,}(?=[\s/:]|$)")


def commands(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def words(text: str) -> set[str]:
    """The words in capitals that stand for something in its commands."""
    return {word for command in commands(text) for word in WORD.findall(command)}


def rule_steps(rule: Rule) -> list[str]:
    return [step.remedy.do for step in rule.steps]


@pytest.mark.parametrize("step", RemedyStep, ids=lambda step: step.name)
def test_a_step_has_all_that_the_facts_know(step: RemedyStep) -> None:
    evidence = own(host=host(holder(), holder(pid=PID + 1)), cloud=node(queued_resource="q-1", runtime_version="v2"))
    (filled,) = remedy((step,), Facts(evidence, JudgeLimits()), (PID, PID + 1))
    assert words(filled.do) <= {"ACCOUNT"}
    if step is RemedyStep.LOOK:
        assert commands(filled.do) == [f"sudo py-spy dump --pid {pid}" for pid in (PID, PID + 1)]
    if "PID" in words(step.value.do):
        assert str(PID) in filled.do


@pytest.mark.parametrize("step", RemedyStep, ids=lambda step: step.name)
def test_a_step_tells_how_to_find_what_is_not_known(step: RemedyStep) -> None:
    evidence = own(identity=Identity(), host=host())
    (filled,) = remedy((step,), Facts(evidence, JudgeLimits()), (PID,))
    assert str(PID) not in filled.do
    assert all(f"{word} is " in filled.do for word in words(filled.do))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rules_steps_have_all_that_is_known(rule: Rule) -> None:
    steps = [Remedy(do, "") for do in rule_steps(rule)]
    for step in filled_in(steps, KNOWN):
        assert words(step.do) <= {"OTHER_ZONE"} | OF_THE_READER, step.do
    for step in filled_in(steps, {}):
        assert all(f"{word} is " in step.do for word in words(step.do) - OF_THE_READER), step.do


@pytest.mark.parametrize(
    ("pids", "file", "shown"),
    [
        ((7, 4242), "/tmp/tpu_logs/a", "--pid 4242"),  # noqa: S108
        ((), HEARTBEATS, "--pid 4242"),  # the kernel named it
        ((7,), "/tmp/tpu_logs/a", "--pid PID"),  # noqa: S108 # only a text names it
    ],
)
def test_of_processes_only_those_count_that_not_only_a_text_names(pids: tuple[int, ...], file: str, shown: str) -> None:
    rule = next(rule for rule in RULES if any("--pid PID" in do for do in rule_steps(rule)))
    assert rule.cause is not None
    event = Event(
        key=b"1", rule=rule.id, cause=rule.cause, observed=1.0, time=1.0, severity="W", pid=4242, file=file, offset=0,
        text="", details={},
    )  # fmt: skip
    (finding,) = fold([RecognisedRecord(rule, event, {})], {}, pids)
    assert any(shown in step.do for step in finding.remedy)


def test_each_command_is_one_that_a_shell_takes() -> None:
    found = sorted({command for text in printed() for command in commands(text) if is_command(command)})
    assert len(found) > 100
    for command in found:
        assert shlex.split(command), command
    script = "\n".join(found)
    done = subprocess.run(["/bin/bash", "-n"], input=script, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def is_command(text: str) -> bool:
    """Not every text between backquotes is one: `enabled = false` is a setting."""
    return re.match(r"[a-z][\w./-]* (?!= )", text) is not None


def printed() -> Iterator[str]:
    """The texts of the package and of its rules, with a word in place of what is filled in."""
    yield from (step.value.do for step in RemedyStep)
    for rule in RULES:
        yield from rule_steps(rule)
    for path in PACKAGE.rglob("*.py"):
        yield from strings(ast.parse(path.read_text()))


def strings(tree: ast.AST) -> Iterator[str]:
    """The texts of a program but for its docstrings."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
            continue
        if isinstance(child, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in child.values)
        elif isinstance(child, ast.Constant) and isinstance(child.value, str):
            yield child.value
        else:
            yield from strings(child)
