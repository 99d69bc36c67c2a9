"""The commands of tpuwatch that documents show."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import chain
from typing import Final

from tests.paths import ROOT

DOCUMENTS: Final = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")])
RULES: Final = sorted((ROOT / "deploy" / "prometheus").glob("*.rules.yml"))
READING: Final = {"status", "nodes", "events", "restarts", "tune", "doctor", "config", "env", "diagnose"}
# Words with which such a command changes something, needs more than a simulator, or does not end.
_OTHERWISE: Final = {"cancel", "reset-breaker", "--apply", "--write", "--follow", "-f", "--watch", "--plot", "-"}
_CHANGES_UNLESS_DRY: Final = {"--reset", "--prune-logs"}
_EXAMPLES: Final = {
    "NODE": "train-1",
    "PID": "4242",
    "SIZE": "6G",
    "S": "1",
    "N": "3",
    "F": "1",
    "CAUSE": "core_halted",
}


def documented_commands() -> dict[tuple[str, ...], str]:
    """The words after `tpuwatch` of each command that is shown, and a document in which it is."""
    found: dict[tuple[str, ...], str] = {}
    for document in (*DOCUMENTS, *RULES):
        text = document.read_text(encoding="utf-8").replace("{{ $labels.cause }}", "CAUSE")
        text = re.sub(r"\{\{[^}]*\}\}", "NODE", text)
        for line in chain(_lines(text), _inline(text), launched(text)):
            for words in commands_in(line):
                found.setdefault(words, str(document.relative_to(ROOT)))
    return found


def reads(words: tuple[str, ...]) -> bool:
    """Whether the command only reads, and ends."""
    if words[0] not in READING or _OTHERWISE & set(words):
        return False
    return not _CHANGES_UNLESS_DRY & set(words) or "--dry-run" in words


def _lines(text: str) -> Iterator[str]:
    """Lines of blocks that are to be copied into a shell."""
    for kind, block in re.findall(r"^ *```(\w*)\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE):
        if kind not in ("", "sh", "console"):
            continue
        for line in block.replace("\\\n", " ").splitlines():
            shown = line.strip()
            if shown.startswith(("$ ", "tpuwatch ", "sudo ")) or "| tpuwatch " in shown:
                yield shown.removeprefix("$ ")


def _inline(text: str) -> Iterator[str]:
    prose = re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*[|*-])", prose):
        for code in re.findall(r"`([^`]+)`", paragraph):
            yield " ".join(code.split())


def launched(text: str) -> Iterator[str]:
    """Commands in what is given to a launcher: behind other words, in quotes, in a unit, in YAML, in Python."""
    for block in re.findall(r"^ *```\w+\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            listed = re.search(r"\[[\"']?tpuwatch[\"']?, [^\]]*\]", line)
            if listed is not None:
                yield re.sub(r"[\[\],\"']", "", listed[0])
                continue
            for quote, command in re.findall(r"([\"']?)(?<!\w)(tpuwatch (?:exec|env) .*)$", line):
                own = command.partition(quote)[0] if quote else command
                yield re.sub(r" \d?>{1,2} ?\S+", "", own)  # without redirections


def commands_in(line: str) -> Iterator[tuple[str, ...]]:
    """The commands of tpuwatch in a line of shell. What stands for more words (…, [--option], a | b) is none."""
    for part in re.split(r"[|;&]+|\$\(|\)", re.sub(r"\s+# .*", "", line)):
        found = re.match(r"\s*\"?(?:(?:sudo(?: -u \w+)?|[A-Z_]+=\S+) )*tpuwatch ([a-z].*)", part)
        if found is None or re.search(r"[…\[\]<]|\bACTION\b|\bCOMMAND\b.*…", found[1]):
            continue
        try:
            words = shlex.split(found[1].partition(" > ")[0].strip().rstrip('".,'))
        except ValueError:
            continue
        yield tuple(_EXAMPLES.get(word, word) for word in words)
