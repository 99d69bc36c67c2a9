"""Words in capitals in a remedy's commands, such as PID: their values where they are known, else how to find them.

A command is a text between backquotes.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tpuwatch.model.events import Remedy

# How to find the value of each word.
HOW_TO_FIND: Final = {
    "PID": "PID is a process that holds the TPU: `sudo lsof -w /dev/accel* /dev/vfio/* /tmp/libtpu_lockfile`",
    "ACCOUNT": "ACCOUNT is the account whose credentials tpuwatch has: `tpuwatch doctor`",
    "NODE": "NODE is the node's name: `gcloud compute tpus tpu-vm list --zone=ZONE`",
    "WORKER": "WORKER is one of its hosts, the first is 0: `gcloud compute tpus tpu-vm describe NODE --zone=ZONE`",
    "QUEUED_RESOURCE": "QUEUED_RESOURCE is one of: `gcloud compute tpus queued-resources list --zone=ZONE`",
    "TYPE": "TYPE is one of: `gcloud compute tpus accelerator-types list --zone=ZONE`",
    "VERSION": "VERSION is one of: `gcloud compute tpus versions list --zone=ZONE`",
    "ZONE": "ZONE is one of: `gcloud compute tpus locations list`",
    "OTHER_ZONE": "OTHER_ZONE is one of: `gcloud compute tpus locations list`",
    "PROJECT": "PROJECT is one of: `gcloud projects list`",
}
_COMMAND: Final = re.compile(r"`[^`]+`")
_WORD: Final = re.compile(rf"\b(?:{'|'.join(HOW_TO_FIND)})\b")


def filled_in(steps: Iterable[Remedy], known: Mapping[str, str]) -> tuple[Remedy, ...]:
    """The steps with the known values in their commands, and at their ends how to find the others.

    `known`: by the word, as a shell takes it; empty: not known.
    """
    return tuple(replace(step, do=_with_values(step.do, known)) for step in steps)


def _with_values(text: str, known: Mapping[str, str]) -> str:
    sought: dict[str, None] = {}
    filled = _filled(text, known, sought)
    for word, hint in HOW_TO_FIND.items():  # what one hint needs comes behind it
        if word in sought:
            filled = f"{filled.removesuffix('.')}. {_filled(hint, known, sought)}"
    return filled


def _filled(text: str, known: Mapping[str, str], sought: dict[str, None]) -> str:
    """The text with the known words filled in; the others are added to `sought`."""

    def value(word: re.Match[str]) -> str:
        if not known.get(word[0]):
            sought[word[0]] = None
        return known.get(word[0]) or word[0]

    return _COMMAND.sub(lambda command: _WORD.sub(value, command[0]), text)
