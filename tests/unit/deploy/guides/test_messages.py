"""The error messages of Google's guides, in each form in which they reach a log: the cause and remedy of their item."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

import pytest

from deploy.guides.table import Item, Message, load
from tests.unit.whole_text import findings_in
from tpuwatch.logs.parse.scan import Scanner
from tpuwatch.logs.rules.catalogue import load_catalogue

SCANNER = Scanner(load_catalogue())
ITEMS = load()[1]
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|PermissionDenied)\b")
_TRACEBACK = """\
Traceback (most recent call last):
  File "/home/u/train.py", line 88, in <module>
    main()
  File "/home/u/train.py", line 42, in main
    state = step(state, batch)
"""


def wrapped(text: str, width: int) -> str:
    """Each line broken between words, as mail and narrow terminals do."""
    lines = (textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False) for line in text.splitlines())
    return "\n".join(line for of in lines for line in of or [""])


def traceback(text: str) -> str:
    raised = text if _EXCEPTION.match(text) else f"RuntimeError: {text}"
    return _TRACEBACK + raised


FORMS = {
    "exact": lambda text: text,
    "glog": lambda text: f"E1128 10:11:12.123456    4711 executor.cc:214] {text}",
    "worker": lambda text: "\n".join(f"(TrainWorker pid=4711) {line}" for line in text.splitlines()),
    "log": lambda text: f"2026-11-28 10:11:12,123 ERROR train.py:88 {text}",
    "wrapped 60": lambda text: wrapped(text, 60),
    "wrapped 80": lambda text: wrapped(text, 80),
    "traceback": traceback,
}


def cases() -> Iterator[tuple[Item, Message, str, str]]:
    """Each message in its forms, without those that make no sense."""
    for item in ITEMS:
        for message in item.message:
            for wording, text in (("", message.text), ("now ", message.now)):
                for form, made in FORMS.items():
                    if text and form not in (message.left_out or {}):
                        yield item, message, wording + form, made(text)


CASES = list(cases())


@pytest.mark.parametrize(("item", "message", "form", "text"), CASES, ids=[f"{case[0].id} {case[2]}" for case in CASES])
def test_a_message_has_the_cause_and_the_remedy_of_its_item(item: Item, message: Message, form: str, text: str) -> None:
    before = f"{message.before}\n" if message.before else ""
    finding = findings_in(f"{before}{text}\n".encode(), SCANNER, "console.txt")[0]
    assert finding.cause.value == message.cause
    assert message.cause in item.causes
    if not form.startswith("now"):
        assert finding.rule in item.rules
    remedy = " ".join(step.do for step in finding.remedy)
    assert [words for words in message.words if words not in remedy] == []
    if form == "exact":
        assert [words for words in message.says if words not in finding.summary] == []


def test_a_form_is_left_out_by_its_name() -> None:
    for item in ITEMS:
        for message in item.message:
            assert (message.left_out or {}).keys() <= FORMS.keys() - {"exact"}, item.id


def test_what_a_guide_prints_is_tried_or_said_to_be_no_message() -> None:
    tried = {item.id for item in ITEMS if item.message}
    reasons = {item.id for item in ITEMS if item.no_message}
    assert len(tried) >= 32
    assert len(reasons) >= 41
