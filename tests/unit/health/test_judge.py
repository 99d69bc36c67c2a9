"""The judge: a table of situations, and what holds in all of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.standins.machine import Machine
from tests.unit.health import (
    situations_answers,
    situations_cloud,
    situations_job,
    situations_logs,
    situations_peer,
    situations_serving,
    situations_steps,
    situations_workers,
)
from tests.unit.health.scenes import (
    HOUR,
    MINUTE,
    NOW,
    Situation,
    host,
    hung,
    idle,
    job,
    logs,
    own,
    silent,
    training,
)
from tests.unit.health.situations_job import UP
from tpuwatch.config import Config
from tpuwatch.core.clock import ManualClock
from tpuwatch.health.judge import SHORT_SILENCE_SECONDS, following, judge_node
from tpuwatch.health.limits import JudgeLimits
from tpuwatch.model.answers import Problem
from tpuwatch.model.signals import Host
from tpuwatch.model.verdict import BAD, DESTRUCTIVE, Action, Confidence, Judgement, Source, Verdict
from tpuwatch.signals.host import HostSignal

THEMES = (
    situations_cloud,
    situations_job,
    situations_serving,
    situations_logs,
    situations_answers,
    situations_peer,
    situations_steps,
    situations_workers,
)
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
    commands = " ".join(command for step in judgement.remedy for command in step.do.split("`")[1::2])
    assert not [word for word in situation.unwanted if word in commands]


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


def test_every_destructive_action_is_proven_and_every_one_occurs() -> None:
    destructive = [situation for situation in SITUATIONS if situation.action in DESTRUCTIVE]
    assert {situation.action for situation in destructive} == DESTRUCTIVE
    for situation in destructive:
        judgement = judge_node(situation.evidence, JudgeLimits())
        assert len(judgement.sources - {Source.PROCESS, Source.TEXT}) >= 2, situation.name
        assert judgement.confidence is Confidence.HIGH, situation.name


def test_names_from_outside_are_quoted_in_commands() -> None:
    situation = next(one for one in SITUATIONS if one.name == "stopped by a user")
    cloud = situation.evidence.cloud
    assert cloud.value is not None
    hostile = replace(situation.evidence, cloud=replace(cloud, value=replace(cloud.value, name="x; rm -rf ~\n")))
    steps = [step.do for step in judge_node(hostile, JudgeLimits()).remedy]
    assert any("'x; rm -rf ~' --project" in step for step in steps)


def test_what_signals_word_is_cleaned_and_cut() -> None:
    evidence = own(cloud=silent(Problem.SERVER, "line\nline\x1b[31m" + "x" * 10_000))
    (sentence,) = [one for one in judge_node(evidence, JudgeLimits()).missing if "error on its side" in one]
    assert len(sentence) < 1200
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


def test_a_bad_state_that_is_new_is_suspect_and_says_until_when() -> None:
    new = next(one for one in SITUATIONS if one.name == "elsewhere: timeout for a minute only")
    judgement = judge_node(new.evidence, limited())
    assert (judgement.suspect_since, judgement.counts_from) == (NOW - 60, NOW + 60)
    assert judgement.summary == "The API says READY and TIMEOUT: suspect since 14:12:20, counts from 14:14:20 UTC on."
    known = judge_node(new.evidence, limited(health={"settle_seconds": 30}))
    assert (known.verdict, known.suspect_since, known.counts_from) == (Verdict.NODE_STUCK, None, None)


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
    assert judge_node(job(idle(idle_seconds * 0.9, queue=1), 0.2), limits).verdict is Verdict.IDLE
    assert judge_node(job(idle(idle_seconds, queue=1), 0.2), limits).verdict is Verdict.JOB_STUCK
    assert judge_node(job(idle(idle_seconds), 0.2), limits).verdict is Verdict.IDLE


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


# -- whose CPU time is evidence of a compile


def seen_at(machine: Machine, *, holder: float, child: float, others: float) -> Host:
    """What the host's signal sees when, within ten seconds, the process that holds the TPU has used so many seconds of
    CPU time, a child of it so many, and programs that have nothing to do with the TPU so many."""
    clock = ManualClock()
    signal = HostSignal(clock=clock, root=machine.root)
    for share in (0, 1):
        machine.process(40, files=("/dev/vfio/0",), cpu=100 + share * holder)
        machine.process(41, parent=40, command="python3\0loader\0", cpu=share * child)
        for pid in (50, 51):
            machine.process(pid, command="cc1plus\0", cpu=100 + share * others / 2)
        machine.write("proc/stat", f"cpu  {share * 1000} 0 0 0 0 0 0 0 0 0\ncpu0 {share * 1000} 0 0 0 0 0 0 0 0 0\n")
        seen = signal.ask().value
        clock.advance(10)
    assert seen is not None
    return seen


@pytest.mark.parametrize(
    ("used", "verdict"),
    [
        pytest.param(
            {"holder": 0, "child": 0, "others": 18}, Verdict.RUNTIME_STUCK, id="others work, the holder rests"
        ),
        pytest.param({"holder": 18, "child": 0, "others": 0}, Verdict.COMPILING, id="the holder works"),
        pytest.param({"holder": 0, "child": 18, "others": 0}, Verdict.COMPILING, id="a child of the holder works"),
    ],
)
def test_only_the_cpu_time_of_the_holder_and_its_children_is_evidence_of_a_compile(
    tmp_path: Path, used: dict[str, float], verdict: Verdict
) -> None:
    (holder,) = seen_at(Machine(tmp_path), **used).holders
    seen = replace(host(replace(holder, started=NOW - HOUR)), at=NOW - 5)
    evidence = job(hung(20 * MINUTE), None, host=seen, logs=logs())
    assert judge_node(evidence, JudgeLimits()).verdict is verdict


def test_where_the_holder_cannot_be_seen_no_cpu_time_is_evidence_of_a_compile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object) -> dict[str, str]:
        raise PermissionError

    monkeypatch.setattr("tpuwatch.host.procfs.ProcFs.open_files", denied)
    seen = replace(seen_at(Machine(tmp_path), holder=0, child=0, others=18), booted=NOW - HOUR)
    assert (seen.holders, len(seen.unseen)) == ((), 1)
    verdicts = {
        judge_node(own(runtime=runtime, host=seen, logs=UP), JudgeLimits()).verdict
        for runtime in (hung(20 * MINUTE), idle(20 * MINUTE))
    }
    assert verdicts == {Verdict.RUNTIME_STUCK, Verdict.IDLE}


# -- following: since when a verdict holds


STUCK, HEALTHY, IDLE = Verdict.JOB_STUCK, Verdict.HEALTHY, Verdict.IDLE
UNKNOWN, WRONG = Verdict.UNKNOWN, Verdict.MISCONFIGURED
SHORT = SHORT_SILENCE_SECONDS


def at(when: float, verdict: Verdict) -> Judgement:
    usual = judge_node(training(), JudgeLimits())
    return replace(usual, at=NOW + when, verdict=verdict)


@pytest.mark.parametrize(
    ("steps", "since"),
    [
        pytest.param([(0, HEALTHY)], 0, id="a first verdict holds since now"),
        pytest.param([(0, IDLE), (10, HEALTHY), (20, HEALTHY)], 10, id="since it was first given"),
        pytest.param([(0, STUCK), (100, UNKNOWN), (200, UNKNOWN)], 100, id="unknown is a verdict"),
        pytest.param([(0, STUCK), (100, UNKNOWN), (200, UNKNOWN), (300, STUCK)], 0, id="a short unknown"),
        pytest.param(
            [(0, STUCK), (100, UNKNOWN), (100 + SHORT, UNKNOWN), (101 + SHORT, STUCK)], 101 + SHORT, id="long"
        ),
        pytest.param([(0, STUCK), (100, WRONG), (300, STUCK)], 0, id="a short misconfigured"),
        pytest.param([(0, STUCK), (100, WRONG), (101 + SHORT, STUCK)], 101 + SHORT, id="a long misconfigured"),
        pytest.param([(0, STUCK), (100, UNKNOWN), (150, WRONG), (300, STUCK)], 0, id="both"),
        pytest.param([(0, STUCK), (100, WRONG), (150, UNKNOWN), (300, STUCK)], 0, id="both, the other way round"),
        # It counts from the first of them, not from the last.
        pytest.param([(0, STUCK), (100, UNKNOWN), (150, WRONG), (101 + SHORT, STUCK)], 101 + SHORT, id="both, long"),
        pytest.param(
            [(0, STUCK), (100, WRONG), (150, UNKNOWN), (101 + SHORT, STUCK)], 101 + SHORT, id="long, reversed"
        ),
        pytest.param([(0, WRONG), (100, UNKNOWN), (200, WRONG)], 0, id="misconfigured outlives a short unknown"),
        pytest.param([(0, STUCK), (100, UNKNOWN), (110, HEALTHY)], 110, id="another verdict begins again"),
        pytest.param([(0, HEALTHY), (-1000, HEALTHY)], -1000, id="a clock that jumps back"),
    ],
)
def test_since_when_a_verdict_holds(steps: list[tuple[float, Verdict]], since: float) -> None:
    last: Judgement | None = None
    for when, verdict in steps:
        last = following(last, at(when, verdict))
    assert last is not None
    assert last.since == NOW + since
    assert (last.interrupted is None) == (last.verdict is not UNKNOWN)


def test_a_verdict_of_before_a_restart_of_tpuwatch_goes_on() -> None:
    stored = at(0, HEALTHY)  # without the time since which it holds
    assert following(stored, at(50, HEALTHY)).since == NOW


def test_nobody_is_told_to_look_for_a_holder_that_is_seen_and_every_list_of_holders_has_the_lock_files() -> None:
    for situation in SITUATIONS:
        steps = [step.do for step in judge_node(situation.evidence, JudgeLimits()).remedy]
        if situation.evidence.host.value is not None and situation.evidence.host.value.holders:
            assert not any("that tpuwatch cannot see" in step for step in steps), situation.name
        assert all("libtpu_lockfile" in step for step in steps if "lsof" in step), situation.name


def test_what_a_signal_says_of_its_own_failure_is_whole() -> None:
    advice = (
        "The token has no scope. " + "Read what follows. " * 20 + "Then set key_file = /etc/tpuwatch/keys/account.json."
    )
    evidence = own(cloud=silent(Problem.SCOPE, advice))
    (sentence,) = [one for one in judge_node(evidence, JudgeLimits()).missing if "lacks a scope" in one]
    assert advice in sentence
