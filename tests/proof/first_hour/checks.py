"""Rules that hold of every view at every stage, whatever the story is at."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from typing import Final

from jsonschema import Draft202012Validator

from tests.proof.first_hour.machine import Machine, Shown
from tests.proof.first_hour.views import as_read
from tpuwatch.core import decode
from tpuwatch.model import NodeDocument, NodesDocument, StatusDocument

_MISUSED: Final = 2
_PROGRAMS: Final = frozenset(
    (
        *("apt", "apt-get", "cat", "curl", "df", "docker", "export", "gcloud", "journalctl", "kill", "kubectl", "ls"),
        *("lsof", "pip", "pkill", "ps", "py-spy", "rm", "sudo", "systemctl", "tail", "tpuwatch", "unset"),
    )
)
_PLACEHOLDER: Final = re.compile(r"\b(?:PID|NODE|ZONE|PROJECT|COMMAND|NAME|FILE|ACCOUNT|TYPE|VERSION|QUEUED|HOST)\b")
# What nobody can know: the command that will be run next, and an account that is somebody's choice.
_UNKNOWABLE: Final = re.compile(r"tpuwatch exec(?: --workload \S+)? -- COMMAND|serviceAccount:ACCOUNT")
_CHANGES: Final = frozenset({"restart"})  # is run with --dry-run by this check; the story runs it
_NOT_RUN: Final = frozenset({"exec", "run", "top", "demo", "sim", "install"})  # do not end, or start something


def faults(shown: Mapping[str, Shown]) -> Iterator[str]:
    """Answers that are none, and tracebacks of ours."""
    for name, view in shown.items():
        if name == "metrics" or name.startswith(("page", "api.")):
            if view.code != 200:
                yield f"{name} answers {view.code}: {view.text[:200]}"
        elif view.code == _MISUSED:
            yield f"{name} ends with {view.code}: {view.errors.strip()[:200]}"
        for text in (view.text, view.errors):
            if re.search(r'File "[^"]*/tpuwatch/(?!sim/)', text):
                yield f"{name} shows a traceback: {text[-400:]}"
    for line in _complaints("promtool", "check", "metrics", given=shown["metrics"].text):
        yield f"promtool check metrics: {line}"


def undescribed(machine: Machine, shown: Mapping[str, Shown]) -> Iterator[str]:
    """Documents that are not as /api/v1/openapi.json of the same daemon describes them."""
    described = machine.api("openapi.json")
    for name, view in shown.items():
        if not name.startswith("api."):
            continue
        path = described["paths"][f"/api/v1/{name.removeprefix('api.')}"]
        schema = path["get"]["responses"][str(view.code)]["content"]["application/json"]["schema"]
        validator = Draft202012Validator({**schema, "components": described["components"]})
        for error in validator.iter_errors(json.loads(view.text)):
            yield f"{name} is not as described: {error.json_path}: {error.message[:300]}"


def disagreements(shown: Mapping[str, Shown]) -> Iterator[str]:
    """One number of problems, one headline, one exit code, in all views of the daemon."""
    status = decode(StatusDocument, json.loads(shown["api.status"].text))
    total, headline = sum(status.problem_counts.values()), status.headline
    for name in ("status.80", "status.160", "status", "status-v", "top", "page"):
        if headline not in as_read(name, shown[name]):
            yield f"{name} does not begin with {headline!r}: {as_read(name, shown[name])[:200]}"
    counted = re.findall(r"^tpuwatch_problems\{.*\} (\S+)$", shown["metrics"].text, re.MULTILINE)
    if sum(map(float, counted)) != total:
        yield f"metrics count {counted}, the API {total} problems"
    wanted = 1 if total else 0 if status.judged else 3
    for name in ("status.80", "status.160", "status", "status-v"):
        if shown[name].code != wanted:
            yield f"{name} ends with {shown[name].code} in place of {wanted}"
    yield from _disagreements_on_nodes(shown)


def _disagreements_on_nodes(shown: Mapping[str, Shown]) -> Iterator[str]:
    watched = decode(NodesDocument, json.loads(shown["api.nodes"].text))
    # A queued resource has the same state and problem in each view that shows it.
    for one in watched.queued_resources:
        for name in ("nodes", "page"):
            if any(word not in as_read(name, shown[name]) for word in (one.name, one.state, one.problem or "")):
                yield f"{name} does not show queued resource {one.name} as {one.state}, {one.problem}"
    # What is bad is bad in each view that shows nodes, by the same word.
    for node in watched.nodes:
        for name in ("nodes", "page", "metrics"):
            text = as_read(name, shown[name])
            said = (node.node in text and node.verdict in text) if name != "metrics" else _judged(text, node)
            if not said:
                yield f"{name} does not call {node.node} {node.verdict}, the API does"


def _judged(text: str, node: NodeDocument) -> bool:
    labels = (f'node="{node.node}"', f'verdict="{node.verdict}"')
    series = re.findall(r"tpuwatch_verdict(\{[^}]*\}) 1\.0", text)
    return any(all(label in one for label in labels) for one in series)


def commands(name: str, shown: Shown) -> Iterator[str]:
    """The commands that a view tells its reader to run: in backquotes, or on lines of their own."""
    for text in (*re.findall(r"`([^`]+)`", as_read(name, shown)), *_lines(shown.text)):
        if text.split(" ", 1)[0] in _PROGRAMS and " " in text.strip():
            yield text.strip()


def _lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if found := re.match(r"\s+(?:\$ )?((?:sudo )?(?:tpuwatch|gcloud|kubectl) [a-z].*)$", line):
            yield found[1]


class CommandCheck:
    """Runs or parses each command that any view shows, once."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._seen: dict[str, list[str]] = {}

    def faults(self, shown: Mapping[str, Shown], pids: frozenset[int]) -> Iterator[str]:
        """Faults of the commands in these views. `pids`: those that a command may be about."""
        for name, view in shown.items():
            for command in dict.fromkeys(commands(name, view)):
                if command not in self._seen:
                    self._seen[command] = list(self._check(command, pids))
                    yield from (f"{name}: `{command}`: {fault}" for fault in self._seen[command])

    def _check(self, command: str, pids: frozenset[int]) -> Iterator[str]:
        if held := _PLACEHOLDER.search(_UNKNOWABLE.sub("", command)):
            yield f"has the placeholder {held[0]}"
            return
        if wrong := _complaints("bash", "-n", "-c", command):
            yield f"is no shell: {wrong}"
            return
        words = shlex.split(command)
        words = words[1:] if words[0] == "sudo" else words
        if words[0] == "kill":
            yield from (f"is about {word}, which no job has" for word in words[1:] if _is_other(word, pids))
        elif words[0] == "tpuwatch" and words[1] not in _NOT_RUN:
            given = words[1:] + (["--dry-run"] if words[1] in _CHANGES and "--dry-run" not in words else [])
            # This machine's own node is restarted from another one, as the text before the command says.
            beyond = {"TPUWATCH_CONFIG": str(self._machine.elsewhere)} if words[1] in _CHANGES else None
            done = self._machine.run(*given, environ=beyond)
            if done.code == _MISUSED or "Traceback" in done.errors:
                yield f"ends with {done.code}: {done.errors.strip()[:300]}"


def _complaints(*command: str, given: str = "") -> list[str]:
    """Lines that a checker prints to its standard error; none if all is right."""
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    return [line for line in done.stderr.splitlines() if line.strip()]


def _is_other(word: str, pids: frozenset[int]) -> bool:
    return word.isdigit() and int(word) not in pids
