"""Plans on disk, and in whose directory."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given as any_of
from hypothesis import settings
from hypothesis import strategies as st

from tpuwatch.core.errors import TuneError
from tpuwatch.launches.exec_records import make_drop_box
from tpuwatch.model.tune import (
    SET_VARIABLE,
    SIZE,
    WORKLOAD_VARIABLE,
    Advice,
    Fit,
    SizeDecision,
    SizeStep,
    TunePlan,
    VariableSetting,
)
from tpuwatch.tune.plan import (
    FormError,
    dump_plan,
    load_plan,
    own_directory,
    plan_directory,
    read_plan,
    workload_name,
    write_plan,
)

DECISION = SizeDecision(SizeStep.GROW, 8 << 30, None, ("3 GiB more were needed.",), before_bytes=4 << 30, trial=True)
PLAN = TunePlan(
    "bert", 1_800_000_000.5, (VariableSetting(SIZE, str(8 << 30), "3 GiB more were needed."),), DECISION, "x 1 2", "v4"
)


def document(**changes: Any) -> bytes:
    return json.dumps({"version": 1, **asdict(PLAN), **changes}).encode()


def decision(**changes: Any) -> dict[str, Any]:
    return {**asdict(DECISION), **changes}


# -- on disk


def test_what_is_written_is_read_again_by_everybody(tmp_path: Path) -> None:
    mask = os.umask(0o077)
    try:
        write_plan(tmp_path / "tune", PLAN)
    finally:
        os.umask(mask)
    assert read_plan(tmp_path / "tune", "bert") == PLAN
    assert read_plan(tmp_path / "tune", "other") is None
    path = tmp_path / "tune" / "plans" / "bert.json"
    assert [stat.S_IMODE(one.stat().st_mode) for one in (path.parents[1], path.parent, path)] == [0o755, 0o755, 0o644]


text = st.text(st.characters(codec="utf-8").filter(str.isprintable), max_size=20)
size = st.none() | st.integers(0, (1 << 50) - 1)
number = st.floats(-1e14, 1e14)
plans = st.builds(
    TunePlan,
    st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True),
    number,
    st.lists(
        st.builds(VariableSetting, st.from_regex(r"(TPU|LIBTPU|TPUWATCH)_X[A-Z0-9_]{0,9}", fullmatch=True), text, text),
        unique_by=lambda setting: setting.name,
    ).map(tuple),
    st.builds(
        SizeDecision,
        st.sampled_from(SizeStep),
        size,
        size,
        st.lists(text).map(tuple),
        size,
        st.booleans(),
        text,
        size,
        size,
        size,
        st.none() | st.builds(Fit, number, number, st.integers(0, 99), st.integers(0, 99), number),
        st.lists(st.builds(Advice, text, text)).map(tuple),
    ),
    text,
)


@pytest.mark.slow
@settings(deadline=None)
@any_of(plans)
def test_every_plan_is_the_same_after_the_disk(plan: TunePlan) -> None:
    assert load_plan(dump_plan(plan)) == plan


def test_keys_that_nobody_knows_are_left_alone() -> None:
    setting = {**asdict(PLAN.settings[0]), "colour": 1}
    assert load_plan(document(more=[1], settings=[setting], decision=decision(mood="good"))) == PLAN


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "no JSON"),
        (b"[]", "version is missing"),
        (b"[" * 100_000, "no JSON"),
        (b"\xff", "no JSON"),
        (document(version=2), "a newer tpuwatch wrote it"),
        (document(version="1"), "version is no number"),
        (document(workload="../x"), "workload is no name"),
        (document(decided=float("nan")), "decided is no number"),
        (document(decided=True), "decided is no number"),
        (document(settings={}), "settings is no list"),
        (document(settings=[{"name": SIZE, "value": "1", "why": ""}] * 2), "there twice"),
        (document(settings=[{"name": "LD_PRELOAD", "value": "1", "why": ""}]), "LD_PRELOAD is no variable"),
        (document(settings=[{"name": "TPU_LIBRARY_PATH", "value": "/x.so", "why": ""}]), "TPU_LIBRARY_PATH is no"),
        (document(settings=[{"name": "TPU_X\n", "value": "1", "why": ""}]), "name is no text"),
        (document(settings=[{"name": "TPU_X=", "value": "1", "why": ""}]), "TPU_X= is no variable"),
        (document(settings=[{"name": SET_VARIABLE, "value": "1", "why": ""}]), "TPUWATCH_SET is no variable"),
        (document(settings=[{"name": "TPU_X", "value": "a\nb", "why": ""}]), "value is no text"),
        (document(settings=[{"name": "TPU_X", "value": 1, "why": ""}]), "value is no text"),
        (document(settings=[{"name": "TPU_X", "value": "1", "why": "\x1b[2J"}]), "why is no text"),
        (document(generation="v" * 17), "generation is no text"),
        (document(decision=decision(step="jump")), "jump is no step"),
        (document(decision=decision(size_bytes=-1)), "size_bytes is no size"),
        (document(decision=decision(size_bytes=True)), "size_bytes is no size"),
        (document(decision=decision(reasons=["\0"])), "reasons is no text"),
        (document(decision=decision(fit={})), "base_seconds is missing"),
        (b" " * (1 << 19), "larger than"),
    ],
    ids=range(26),
)
def test_a_damaged_plan_is_refused_with_what_is_wrong(raw: bytes, why: str) -> None:
    with pytest.raises(FormError, match=why):
        load_plan(raw)


# As the code before the words of today wrote them.
OLD_PLAN = b"""{
 "version": 1, "workload": "bert", "decided": 1800000000.5,
 "settings": [{"name": "TPU_PREMAPPED_BUFFER_SIZE", "value": "4294967296", "why": "pins under [tune] say so."}],
 "decision": {
  "step": "%s", "size_bytes": 4294967296, "threshold_bytes": 1073741824,
  "reasons": ["The launch of 14:13 UTC asked for 2 GiB."], "before_bytes": 4294967296, "trial": false,
  "conflict": "9 GiB are needed.", "need_bytes": 9663676416, "ceiling_bytes": 5368709120, "fast_bytes": null,
  "fit": null, "advice": []
 },
 "config": "/etc/tpuwatch/config.toml 1 2", "generation": "v5e"
}"""


@pytest.mark.parametrize(
    ("word", "step"), [(b"pinned", SizeStep.OVERRIDDEN), (b"stuck", SizeStep.UNSATISFIABLE), (b"keep", SizeStep.KEEP)]
)
def test_the_words_of_an_older_plan_are_translated(tmp_path: Path, word: bytes, step: SizeStep) -> None:
    path = tmp_path / "plans" / "bert.json"
    path.parent.mkdir()
    path.write_bytes(OLD_PLAN % word)
    old = read_plan(tmp_path, "bert")
    assert old is not None
    assert (old.decision.step, old.decision.size_bytes, old.settings[0].value) == (step, 4 << 30, str(4 << 30))
    write_plan(tmp_path, old)
    assert read_plan(tmp_path, "bert") == old


def test_a_plan_of_an_older_tpuwatch_shows_no_generation() -> None:
    older = json.loads(document())
    del older["generation"]
    assert load_plan(json.dumps(older).encode()) == replace(PLAN, generation="")


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    write_plan(tmp_path, PLAN)
    path = tmp_path / "plans" / "bert.json"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(TuneError, match=r"bert\.json is no plan that can be used: it is no JSON; remove it"):
        read_plan(tmp_path, "bert")
    path.rename(path.with_name("gpt.json"))
    write_plan(tmp_path, PLAN)
    path.rename(path.with_name("gpt.json"))
    with pytest.raises(TuneError, match="plan of another workload"):
        read_plan(tmp_path, "gpt")


@pytest.mark.parametrize("name", ["", "..", "a/b", ".x", "a" * 65, "a b"])
def test_what_is_no_name_is_no_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(TuneError, match="cannot"):
        write_plan(tmp_path, replace(PLAN, workload=name or "-"))
    assert list(tmp_path.iterdir()) == []


def test_a_plan_that_could_not_be_read_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(TuneError, match="a variable is there twice"):
        write_plan(tmp_path, replace(PLAN, settings=PLAN.settings * 2))
    with pytest.raises(TuneError, match="a number that is none"):
        write_plan(tmp_path, replace(PLAN, decided=float("nan")))
    assert list(tmp_path.iterdir()) == []


def test_the_workload_is_the_one_that_is_named_else_the_one_of_the_environment() -> None:
    assert workload_name("a", {WORKLOAD_VARIABLE: "b"}) == "a"
    assert workload_name(None, {WORKLOAD_VARIABLE: "b"}) == "b"
    assert workload_name(None, {}) == workload_name(None, {WORKLOAD_VARIABLE: ""}) == "default"


# -- whose directory


def test_the_daemons_directory_is_used_where_it_takes_records(tmp_path: Path) -> None:
    mine = {"XDG_STATE_HOME": str(tmp_path / "state"), "HOME": "/nowhere"}
    assert plan_directory(tmp_path / "tune", mine) == tmp_path / "state" / "tpuwatch" / "tune"
    make_drop_box(tmp_path / "tune")
    assert plan_directory(tmp_path / "tune", mine) == tmp_path / "tune"


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root to be another user")
def test_a_state_directory_that_may_not_be_entered_is_like_none(tmp_path: Path) -> None:
    (tmp_path / "tune" / "launches").mkdir(parents=True)
    tmp_path.chmod(0o700)
    os.seteuid(65534)
    try:
        assert plan_directory(tmp_path / "tune", {"HOME": "/h"}) == Path("/h/.local/state/tpuwatch/tune")
    finally:
        os.seteuid(0)


def test_ones_own_directory_is_where_the_state_of_programs_is() -> None:
    assert own_directory({"HOME": "/home/me"}) == Path("/home/me/.local/state/tpuwatch/tune")
    assert own_directory({"HOME": "/home/me", "XDG_STATE_HOME": "here"}) == Path("/home/me/.local/state/tpuwatch/tune")
    assert own_directory({"XDG_STATE_HOME": "/s"}) == Path("/s/tpuwatch/tune")
