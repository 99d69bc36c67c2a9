"""What a whole text was written for: forms of output, reports, changes, documents and source code, in our own words."""

from __future__ import annotations

import pytest

from tpuwatch.logs.parse.text_kind import TextKind, WholeText

MESSAGE = "TPU initialization failed: open(/dev/accel0): Device or resource busy"

# Long lines are the texts themselves.
# ruff: noqa: E501
REPORTS = [
    MESSAGE,
    f"I get this on our node:\n```\n{MESSAGE}\n```\nYou can see that it was well before.\nFor example, on Monday.\n",
    f"# Gizmo training\n\n## Steps to reproduce\n\nRun it. You should see this:\n```\n{MESSAGE}\n```\n",
    f"## What happened\n\nThe gizmo fails.\n\n## Fix\n\nNone so far.\n```\n{MESSAGE}\n```\n",
    f"2026-01-02 03:04:05 gizmo: {MESSAGE}\nNote that you can set GIZMO=1.\nFor example, in the shell.\n",
    f"INFO:gizmo:You should make sure that there is room.\nERROR:gizmo:{MESSAGE}\nThis means trouble. You can try again.\n",
    f"# Troubleshooting\n\nTraceback (most recent call last):\nRuntimeError: {MESSAGE}\n",
    f"# Troubleshooting\n\nE0101 01:02:03.000004 7 a.cc:1] {MESSAGE}\n",
    f"Why does the gizmo fail? You can see it below, and you should know.\n{MESSAGE}\n",
    f"The gizmo hit again, this time on the previous node.\nNow the box has gone: {MESSAGE}\n",
    f'  File "/app/gizmo.py", line 3, in run\n    return self.start(\n    with self.lock:\n    raise it\nRuntimeError: {MESSAGE}\n',
    "We ran into trouble after this change in\n`gizmo/core.py`. Instead of starting, it fails: " + MESSAGE,
]
CHANGES = [
    f"# Problem\nThe gizmo failed with `{MESSAGE}`.\n\n# Solution\nWait longer.\n",
    f'[gizmo] Clean up before the start\n\nA start fails with "{MESSAGE}" now and then.\n\nFix: remove the lock.\n',
    f"This PR waits for the device; the start failed with {MESSAGE}.\n",
    f"This patch adds a wait.\n\n```\n{MESSAGE}\n```\n",
    f"Add a wait to the gizmo\n\nWithout it the start fails, and it now runs twice:\n```\n{MESSAGE}\n```\n",
    f"We install another gizmo. It causes this:\n```\n{MESSAGE}\n```\nWe no longer need the old one, and this also removes it.\n",
    f"Reverts #77.\n\nThe gizmo fails on every tenth start: {MESSAGE}\n",
    f"## Summary\n\nThe gizmo waits.\n\n## Test plan\n\nStart it; it must not say `{MESSAGE}`.\n",
    f"````diff\n+{MESSAGE}\n+\n+Look for the gizmo.\n````\n",
    f"diff --git a/gizmo b/gizmo\n@@ -1 +1 @@\n+{MESSAGE}\n",
    f"It would be great to have a gizmo. We should wait for it: {MESSAGE}\n",
]
DOCUMENTS = [
    f"## 9. Troubleshooting\n\n### The gizmo is stuck\n```\n{MESSAGE}\n```\n",
    f"# Common errors\n\n- `{MESSAGE}`\n",
    f"## 常见问题\n\n- `{MESSAGE}`\n",
    f"## Solución de problemas\n\n- `{MESSAGE}`\n",
    f"**Suggested action:** wait.\n\n```\n{MESSAGE}\n```\n",
    f"```\n{MESSAGE}\n```\nThis error means that somebody else has the gizmo.\n",
    f"```\n{MESSAGE}\n```\nwhich implies that somebody else has had it.\n",
    f"Exit code 137 means that your gizmo took too much.\n{MESSAGE}\n",
    f"| What it looks like | Correct response |\n|---|---|\n| `{MESSAGE}` | wait |\n",
    f".. _gizmo_faq:\n\nGizmos\n========\n\n.. code-block::\n\n    {MESSAGE}\n\nYou can wait for it. For example, a minute.\n",
    f"error messages that look like this:\n\n.. code-block::\n\n   E0101 01:02:03.000004 7 a.cc:1] {MESSAGE}\n\nProcess 0 is special.\n",
    f"List your gizmos. If the gizmo is away, its state changes.\n\nFor example:\n\n{MESSAGE}\n",
    "state: Output only. One of READY, PREEMPTED: the node was preempted.\n",
]
CODES = [
    f'def start(self):\n    with self.lock:\n        return 1\n\nclass Gizmo:\n    words = "{MESSAGE}"\n',
    f'import gizmo\nfrom gizmo import core\n\ndef test_start():\n    text = """\n{MESSAGE}\n"""\n    assert core.start(text)\n',
]
CASES = {TextKind.CHANGE: CHANGES, TextKind.DOCUMENT: DOCUMENTS, TextKind.CODE: CODES}
OUTPUTS = [
    MESSAGE,
    f"Testing: 40%|###\n[rank0]: RuntimeError: {MESSAGE}\n",
    f"[rank0]: Traceback (most recent call last):\n[rank0]: gizmo.GizmoError: {MESSAGE}\nFix: make it smaller\n",
    f"Changes: 3 files\n[host-0] INTERNAL: {MESSAGE}\n",
    f"==========\nyou should use a gizmo\nNote that it takes long\nRESOURCE_EXHAUSTED: {MESSAGE}\n",
]


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in CASES.items() for text in texts])
def test_a_text_is_of_the_kind_that_its_writer_meant(kind: TextKind, text: str) -> None:
    assert WholeText(text.encode()).kind is kind
    assert not kind.tells


@pytest.mark.parametrize("text", REPORTS + OUTPUTS)
def test_what_was_printed_or_happened_to_the_writer_tells_of_a_failure(text: str) -> None:
    assert WholeText(text.encode()).kind.tells


@pytest.mark.parametrize("text", OUTPUTS)
def test_output_alone_is_nobodys_report(text: str) -> None:
    assert WholeText(text.encode()).kind is TextKind.OUTPUT


@pytest.mark.parametrize("text", [text for texts in (CHANGES, DOCUMENTS) for text in texts if "diff" not in text])
def test_what_a_program_printed_at_the_end_tells_of_a_failure_in_each(text: str) -> None:
    assert WholeText(f"{text}\n2026-01-02 03:04:05 gizmo: {MESSAGE}\n".encode()).kind.tells
