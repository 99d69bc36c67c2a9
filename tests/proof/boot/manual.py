"""The commands that the documents give, so that it is those that are proven."""

from __future__ import annotations

import re

from tests.paths import ROOT

REPOSITORY = ROOT
_INLINE = re.compile(r"`(sudo [^`]+)`")
_BLOCK = re.compile(r"^```\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands(document: str, heading: str) -> str:
    """The first block of commands below a heading, as a script for root, from the repository in the machine."""
    text = (REPOSITORY / document).read_text(encoding="utf-8")
    _, found, section = text.partition(f"\n{heading}\n")
    block = _BLOCK.search(section)
    if not found or block is None:
        raise LookupError(f"{document} has no commands below {heading!r}")
    return _script(block[1])


def sentence(document: str, word: str) -> str:
    """The one command with this word that stands within a sentence, as such a script."""
    text = (REPOSITORY / document).read_text(encoding="utf-8")
    found = [command for command in _INLINE.findall(text) if word in command]
    if len(found) != 1:
        raise LookupError(f"{document} has {len(found)} commands with {word!r} in its sentences")
    return _script(found[0])


def _script(commands: str) -> str:
    return 'sudo() { "$@"; }\ncd /mnt/tpuwatch\n' + commands
