"""Next launches as the API, the page and the terminal show them."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.web import samples
from tests.unit.web.samples import NOW, SampleView
from tpuwatch.core.codec import encode
from tpuwatch.core.json_text import dumps
from tpuwatch.model.documents.tune import TuneDocument
from tpuwatch.model.status import TunedStatus, TuneStatus
from tpuwatch.model.tune import SIZE, Fit, SizeDecision, SizeStep, TunePlan, VariableSetting
from tpuwatch.web import page
from tpuwatch.web.routes import Api
from tpuwatch.web.sentences import tune_sentences

GIB = 1 << 30
HOSTILE = "</td><script>alert(1)</script>\x1b[31m\n\u202e"


def tuned(workload: str = "train", step: SizeStep = SizeStep.GROW, why: str = "It was too small.") -> TunedStatus:
    made = SizeDecision(
        step,
        8 * GIB,
        None,
        (why, "There is memory for it."),
        before_bytes=4 * GIB,
        trial=True,
        conflict="It will be slow.",
        need_bytes=6 * GIB,
        fit=Fit(2.0, 1e-9, 5, 1, 0.1),
    )
    plan = TunePlan(workload, NOW - 60, (VariableSetting(SIZE, str(8 * GIB), why),), made)
    return TunedStatus(plan, 3, NOW - 60, file="/plans/train.env", problem="")


def status(*workloads: TunedStatus, problems: tuple[str, ...] = ()) -> TuneStatus:
    return TuneStatus(True, "/var/lib/tpuwatch/tune", workloads, problems)


def test_the_limit_applies_and_a_daemon_that_does_not_tune_has_no_workloads() -> None:
    many = [tuned(f"w{number}") for number in range(5)]
    assert len(Api(SampleView(samples.status(tune=status(*many)))).tune("limit=2").workloads) == 2
    assert Api(SampleView(samples.status())).tune("").workloads == ()
    assert samples.status_document(samples.status()).tune is None


def test_text_of_others_is_cleaned_wherever_it_is_shown() -> None:
    shown = status(tuned(why=HOSTILE), problems=(HOSTILE,))
    document = Api(SampleView(samples.status(tune=shown))).tune("")
    text = dumps([document.problems, [encode(one) for one in document.workloads]])
    assert "\\u001b" not in text
    assert "\\u202e" not in text
    html = page.render(samples.status(tune=shown), [], [], [])
    assert html.count("<script>") == 1  # ours


def test_the_page_shows_what_is_decided_and_why() -> None:
    stuck = replace(tuned("other", SizeStep.UNSATISFIABLE), problem="It cannot be written.")
    html = page.render(samples.status(tune=status(tuned(), stuck)), [], [], [])
    for words in (
        "Next launch",
        "train",
        "grow",
        "unsatisfiable",
        "8 GiB",
        "It was too small.",
        "It cannot be written.",
    ):
        assert words in html
    assert "Environment files for systemd are written" in html
    advice = page.render(samples.status(tune=replace(status(), acts=False)), [], [], [])
    assert "None is decided" in advice
    assert "This is advice" in advice
    assert "Next launch" not in page.render(samples.status(), [], [], [])


def test_the_page_is_bounded() -> None:
    html = page.render(samples.status(tune=status(*(tuned(f"w{number}") for number in range(100)))), [], [], [])
    assert "80 more" in html
    assert "w19" in html
    assert "w20<" not in html


def test_a_person_reads_a_sentence_for_each_workload() -> None:
    document = TuneDocument.of(status(*(tuned(f"w{number}") for number in range(5))), NOW, 5)
    sentences = tune_sentences(document, 3)
    assert sentences[0] == "w0: grow, on trial, premapped buffer 8 GiB. It was too small. It will be slow."
    assert sentences[3:] == ["… and 2 more workloads: `tpuwatch tune` lists them."]
    assert tune_sentences(replace(document, problems=("Bad.",), workloads=()), 3) == ["Bad."]
