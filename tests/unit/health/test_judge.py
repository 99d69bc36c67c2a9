"""The judge: a table of situations, and what holds in all of them."""

from __future__ import annotations

import string
from dataclasses import replace

import pytest

from tests.unit.health import situations_answers, situations_cloud, situations_job, situations_logs, situations_peer
from tests.unit.health.scenes import HOUR, MINUTE, NOW, Situation, hung, idle, job, logs, own, silent, training
from tpuwatch.config import Config
from tpuwatch.health.judge import SHORT_SILENCE_SECONDS, following, judge_node
from tpuwatch.health.limits import JudgeLimits
from tpuwatch.health.remedies import RemedyStep
from tpuwatch.model.signals import Problem
from tpuwatch.model.verdict import BAD, DESTRUCTIVE, Action, Judgement, Verdict

THEMES = (situations_cloud, situations_job, situations_logs, situations_answers, situations_peer)
SITUATIONS: tuple[Situation, ...] = tuple(situation for theme in THEMES for situation in theme.SITUATIONS)


def named(situation: Situation) -> str:
    return situation.name


@pytest.mark.parametrize("situation", SITUATIONS, ids=named)
def test_situation(situation: Situation) -> None:
    judgement = judge_node(situation.evidence, JudgeLimits())
    verdict, action, *more = situation.judged.split()
    assert (judgement.verdict.value, judgement.action.value) == (verdict, action), judgement
    assert {judgement.confidence.value, *(reason.signal.value for reason in judgement.reasons[:1])}.issuperset(more)
    assert all_in_order(situation.contradictions, judgement.contradictions)
    texts = [judgement.summary, *(reason.text for reason in judgement.reasons)]
    assert_words(situation.words, texts)
    assert_words(situation.missing, judgement.missing)
    assert_words(situation.remedy, [step.do for step in judgement.remedy])


def all_in_order(words: tuple[str, ...], sentences: tuple[str, ...]) -> bool:
    """Each sentence holds the words for it, and there is none without."""
    assert len(words) == len(sentences), sentences
    return all(part in sentence for part, sentence in zip(words, sentences, strict=True))


def assert_words(words: tuple[str, ...], sentences: object) -> None:
    assert isinstance(sentences, list | tuple)
    for part in words:
        assert any(part in sentence for sentence in sentences), (part, sentences)


@pytest.mark.parametrize("situation", SITUATIONS, ids=named)
def test_texts_are_fit_to_be_read(situation: Situation) -> None:
    judgement = judge_node(situation.evidence, JudgeLimits())
    sentences = [judgement.summary, *judgement.contradictions, *judgement.missing]
    sentences += [reason.text for reason in judgement.reasons]
    for sentence in sentences:
        assert sentence[0].isupper(), sentence
        assert sentence[-1] in ".…", sentence
        assert sentence.isprintable()
        assert "None" not in sentence
        assert ".." not in sentence
        assert "…." not in sentence
    for step in judgement.remedy:
        assert step.source.startswith("https://")
        assert "{" not in step.do
    assert judgement.reasons or judgement.verdict is Verdict.UNKNOWN
    assert judgement.since is None


def test_every_verdict_and_every_action_occurs() -> None:
    assert {situation.verdict for situation in SITUATIONS} == set(Verdict)
    assert {situation.action for situation in SITUATIONS} == set(Action)


def test_every_destructive_action_is_proven_by_two_signals_and_not_by_logs_alone() -> None:
    destructive = [situation for situation in SITUATIONS if situation.action in DESTRUCTIVE]
    for situation in destructive:
        signals = {reason.signal.value for reason in judge_node(situation.evidence, JudgeLimits()).reasons}
        assert len(signals) >= 2, situation.name
        assert signals & {"cloud", "runtime", "host"}, situation.name


def test_steps_fill_only_what_is_known() -> None:
    fields = {field for step in RemedyStep for _, field, _, _ in string.Formatter().parse(step.value.do) if field}
    assert fields == {"node", "zone", "project", "queued", "type", "version", "spot", "pid"}


def test_names_from_outside_are_quoted_in_commands() -> None:
    situation = next(one for one in SITUATIONS if one.name == "stopped by a user")
    cloud = situation.evidence.cloud
    assert cloud.value is not None
    hostile = replace(situation.evidence, cloud=replace(cloud, value=replace(cloud.value, name="x; rm -rf ~\n")))
    steps = [step.do for step in judge_node(hostile, JudgeLimits()).remedy]
    assert any("tpu-vm start 'x; rm -rf ~' --zone" in step for step in steps)


def test_what_signals_word_is_cleaned_and_cut() -> None:
    evidence = own(cloud=silent(Problem.SERVER, "line\nline\x1b[31m" + "x" * 10_000))
    (sentence,) = [one for one in judge_node(evidence, JudgeLimits()).missing if "error on its side" in one]
    assert len(sentence) < 300
    assert sentence.isprintable()


def limited(**keys: dict[str, float]) -> JudgeLimits:
    return JudgeLimits(Config.model_validate(keys))


def test_the_limits_follow_from_the_configuration() -> None:
    limits = limited(
        logs={"compile_grace_seconds": 61},
        health={"idle_seconds": 4000, "settle_seconds": 63, "boot_grace_seconds": 64},
        cloud={"poll_seconds": 100},
        runtime={"poll_seconds": 1},
        peers={"poll_seconds": 100, "silent_seconds": 120},
    )
    assert (limits.compile_grace_seconds, limits.settle_seconds, limits.boot_grace_seconds) == (61, 63, 64)
    assert (limits.cloud_seconds, limits.peer_seconds, limits.silent_seconds) == (300, 300, 200)
    assert limits.runtime_seconds == 10  # a slow answer to fast polls is no silence
    assert (limits.idle_seconds, limits.max_compile_seconds) == (4000, 8000)
    assert (limits.step_seconds, limits.slow_step_seconds) == (60, 300)
    often = limited(health={"idle_seconds": 60}, peers={"poll_seconds": 5, "silent_seconds": 120})
    assert (often.peer_seconds, often.silent_seconds, often.max_compile_seconds) == (15, 120, 7200)
    assert (often.step_seconds, often.slow_step_seconds) == (30, 30)


def test_a_longer_grace_makes_a_stuck_job_a_compile() -> None:
    evidence = job(hung(20 * MINUTE), 0.0, 30 * MINUTE)
    assert judge_node(evidence, JudgeLimits()).verdict is Verdict.RUNTIME_STUCK
    assert judge_node(evidence, limited(logs={"compile_grace_seconds": 40 * MINUTE})).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("cores", [None, 0.0, 0.2, 3.0])
@pytest.mark.parametrize("known", [True, False])
def test_a_notebook_that_waits_for_its_user_is_never_to_be_ended(cores: float | None, known: bool) -> None:
    for minutes in range(1, 600, 7):
        answers = {} if known else {"logs": logs()}
        judgement = judge_node(job(idle(minutes * MINUTE), cores, 10 * HOUR, **answers), JudgeLimits())
        assert judgement.action in (Action.NONE, Action.WAIT, Action.MANUAL)
        assert not any("kill" in step.do for step in judgement.remedy)


@pytest.mark.parametrize("idle_seconds", [30, 60, 600, 3600])
def test_steps_that_are_minutes_apart_do_not_make_the_verdict_flap(idle_seconds: float) -> None:
    limits = limited(health={"idle_seconds": idle_seconds})
    for since in range(0, int(min(300, idle_seconds / 2)), 5):
        assert judge_node(job(idle(since), 0.2), limits).verdict is Verdict.HEALTHY
    assert judge_node(job(idle(idle_seconds * 0.9), 0.2), limits).verdict is Verdict.IDLE
    assert judge_node(job(idle(idle_seconds), 0.2), limits).verdict is Verdict.JOB_STUCK


def test_on_a_laptop_nothing_is_wrong_and_nothing_is_reported_twice() -> None:
    (laptop,) = (one for one in SITUATIONS if one.name == "no metadata server, and nothing configured")
    judgement = judge_node(laptop.evidence, JudgeLimits())
    assert judgement.verdict not in BAD
    assert (judgement.reasons, judgement.contradictions, judgement.missing) == ((), (), ())
    assert len(judgement.remedy) == 1


def test_what_the_api_lacks_is_reported_once() -> None:
    for one in SITUATIONS:
        judgement = judge_node(one.evidence, JudgeLimits())
        if judgement.verdict is Verdict.MISCONFIGURED:
            assert not any("Cloud TPU API" in sentence for sentence in judgement.missing), one.name


# -- following: since when a verdict holds


def at(when: float, verdict: Verdict) -> Judgement:
    usual = judge_node(training(), JudgeLimits())
    return replace(usual, at=when, verdict=verdict)


def followed(*steps: tuple[float, Verdict]) -> Judgement:
    last: Judgement | None = None
    for when, verdict in steps:
        last = following(last, at(when, verdict))
    assert last is not None
    return last


def test_a_first_verdict_holds_since_now() -> None:
    assert followed((NOW, Verdict.HEALTHY)).since == NOW


def test_a_verdict_holds_since_it_was_first_given() -> None:
    assert followed((NOW, Verdict.IDLE), (NOW + 10, Verdict.HEALTHY), (NOW + 20, Verdict.HEALTHY)).since == NOW + 10


def test_a_short_unknown_does_not_interrupt_it() -> None:
    stuck, unknown = Verdict.JOB_STUCK, Verdict.UNKNOWN
    silence = followed((NOW, stuck), (NOW + 100, unknown), (NOW + 200, unknown))
    assert silence.since == NOW + 100
    back = following(silence, at(NOW + 300, stuck))
    assert (back.since, back.interrupted) == (NOW, None)


def test_a_long_unknown_interrupts_it() -> None:
    stuck, unknown = Verdict.JOB_STUCK, Verdict.UNKNOWN
    late = NOW + 101 + SHORT_SILENCE_SECONDS
    assert followed((NOW, stuck), (NOW + 100, unknown), (late - 1, unknown), (late, stuck)).since == late


@pytest.mark.parametrize("order", [("misconfigured",), ("unknown", "misconfigured"), ("misconfigured", "unknown")])
def test_a_time_without_a_verdict_does_not_interrupt_it(order: tuple[str, ...]) -> None:
    silence = [(NOW + 100 + 50 * place, Verdict(name)) for place, name in enumerate(order)]
    assert followed((NOW, Verdict.NODE_STUCK), *silence, (NOW + 300, Verdict.NODE_STUCK)).since == NOW
    late = silence[0][0] + SHORT_SILENCE_SECONDS + 1  # by the first of them, not by the last
    assert followed((NOW, Verdict.NODE_STUCK), *silence, (late, Verdict.NODE_STUCK)).since == late


def test_misconfigured_outlives_a_short_unknown() -> None:
    wrong, unknown = Verdict.MISCONFIGURED, Verdict.UNKNOWN
    assert followed((NOW, wrong), (NOW + 100, unknown), (NOW + 200, wrong)).since == NOW


def test_another_verdict_after_a_short_unknown_begins_again() -> None:
    steps = ((NOW, Verdict.JOB_STUCK), (NOW + 100, Verdict.UNKNOWN), (NOW + 110, Verdict.HEALTHY))
    assert followed(*steps).since == NOW + 110


def test_a_clock_that_jumps_back_makes_no_verdict_of_the_future() -> None:
    assert followed((NOW, Verdict.HEALTHY), (NOW - 1000, Verdict.HEALTHY)).since == NOW - 1000


def test_a_verdict_of_before_a_restart_of_tpuwatch_goes_on() -> None:
    stored = at(NOW, Verdict.HEALTHY)  # without the time since which it holds
    assert following(stored, at(NOW + 50, Verdict.HEALTHY)).since == NOW
