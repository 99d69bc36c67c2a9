"""What a launcher, a container engine or a mail program makes of a text does not change what is found in it."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator

import pytest

from tests.paths import SHARED
from tests.proof.properties.real_texts import needs_texts
from tests.unit.whole_text import findings_in
from tpuwatch.logs.parse.scan import Scanner
from tpuwatch.logs.parse.text_kind import TextKind, WholeText
from tpuwatch.logs.rules.catalogue import load_catalogue

WIDTH = 80  # of a mail
WRAPPED_AS_BEFORE = 0.95  # of the texts: a line break can also hide where a message begins


def before_each_line(prefix: str) -> Callable[[str], str]:
    return lambda text: "".join(prefix + line for line in text.splitlines(keepends=True))


FORMS: dict[str, Callable[[str], str]] = {
    "Windows": lambda text: text.replace("\n", "\r\n"),
    "Ray": before_each_line("(TrainWorker pid=4711, ip=10.0.0.3) "),
    "vLLM": before_each_line("(EngineCore_0 pid=2000) ERROR 09-01 01:02:03 [core.py:700] "),
    "Kubernetes": before_each_line("2026-09-01T01:02:03.123456789Z stderr F "),
    "kubectl": before_each_line("[pod/train-job-0-0-abcde/worker] "),
    "journald": before_each_line("Sep 01 01:02:03 t1v-n-1234-w-0 python3[4711]: "),
    "torchrun": before_each_line("[rank3]: "),
    "docker compose": before_each_line("worker-3 | "),
    "a launcher's time": before_each_line("[2026-09-01 01:02:03,123] "),
    "an issue": lambda text: f"I ran it and got\n```\n{text}\n```\nAny help?\n",
}


def texts() -> Iterator[str]:
    """The reports among them: what a program or a person says of the program is what such a form makes of it."""
    for corpus in ("corpus", "corpus-2", "corpus-3"):
        for path in sorted((SHARED / corpus / "texts").iterdir()):
            if WholeText(path.read_bytes()).kind is TextKind.REPORT:
                yield path.read_text(encoding="utf-8", errors="replace")


@pytest.fixture(scope="module")
def scanner() -> Scanner:
    return Scanner(load_catalogue())


def first(text: str, scanner: Scanner) -> str:
    found = findings_in(text.encode(), scanner, "job.txt")
    return found[0].cause.value if found else ""


@needs_texts
@pytest.mark.parametrize("form", FORMS)
def test_a_prefix_before_each_line_changes_nothing(scanner: Scanner, form: str) -> None:
    others = [text for text in texts() if first(FORMS[form](text), scanner) != first(text, scanner)]
    assert others == []


@needs_texts
def test_hard_line_breaks_hide_little(scanner: Scanner) -> None:
    def wrapped(text: str) -> str:
        return "\n".join(
            textwrap.fill(line, WIDTH, break_long_words=False, break_on_hyphens=False) for line in text.split("\n")
        )

    found = [(first(text, scanner), first(wrapped(text), scanner)) for text in texts()]
    assert sum(after == before for before, after in found) >= WRAPPED_AS_BEFORE * len(found)
