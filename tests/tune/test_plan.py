"""Plans on disk, and what they make of an environment."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given as any_of
from hypothesis import settings
from hypothesis import strategies as st

from tpuwatch.errors import TuneError
from tpuwatch.tune import planform
from tpuwatch.tune.model import SET_VARIABLE, SIZE, WORKLOAD_VARIABLE, Advice, Decision, Fit, Plan, Setting, Step
from tpuwatch.tune.plan import (
    Given,
    Kept,
    environment,
    fresh_plan,
    make_directory,
    marks,
    ours,
    own_directory,
    pinned,
    plan_directory,
    read_plan,
    renewed,
    stamp,
    workload_name,
    write_plan,
)

DECISION = Decision(Step.GROW, 8 << 30, None, ("3 GiB more were needed.",), before_bytes=4 << 30, trial=True)
PLAN = Plan("bert", 1_800_000_000.5, (Setting(SIZE, str(8 << 30), "3 GiB more were needed."),), DECISION, "x 1 2", "v4")


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
    Plan,
    st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True),
    number,
    st.lists(
        st.builds(Setting, st.from_regex(r"(TPU|LIBTPU|TPUWATCH)_X[A-Z0-9_]{0,9}", fullmatch=True), text, text),
        unique_by=lambda setting: setting.name,
    ).map(tuple),
    st.builds(
        Decision,
        st.sampled_from(Step),
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


@settings(deadline=None)
@any_of(plans)
def test_every_plan_is_the_same_after_the_disk(plan: Plan) -> None:
    assert planform.loads(planform.dumps(plan)) == plan


def test_keys_that_nobody_knows_are_left_alone() -> None:
    setting = {**asdict(PLAN.settings[0]), "colour": 1}
    assert planform.loads(document(more=[1], settings=[setting], decision=decision(mood="good"))) == PLAN


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
        (document(decision=decision(reasons=["\0"])), "reasons are no sentences"),
        (document(decision=decision(fit={})), "base_seconds is missing"),
        (b" " * (1 << 19), "larger than"),
    ],
    ids=range(26),
)
def test_a_damaged_plan_is_refused_with_what_is_wrong(raw: bytes, why: str) -> None:
    with pytest.raises(planform.FormError, match=why):
        planform.loads(raw)


def test_a_plan_of_an_older_tpuwatch_tells_no_generation() -> None:
    older = json.loads(document())
    del older["generation"]
    assert planform.loads(json.dumps(older).encode()) == replace(PLAN, generation="")


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


def test_a_configuration_is_stamped_with_its_place_and_its_state(tmp_path: Path) -> None:
    path = tmp_path / "c\u0085.toml"
    assert stamp(None) == ""
    missing = stamp(path)
    path.write_text("[tune]\n")
    there = stamp(path)
    path.write_text("[tune]\n\n")
    assert len({missing, there, stamp(path), stamp(None)}) == 4
    assert all(text.isprintable() for text in (missing, there))
    assert stamp(path) == stamp(path)


# -- whose directory


def test_the_daemons_directory_is_used_where_it_takes_records(tmp_path: Path) -> None:
    mine = {"XDG_STATE_HOME": str(tmp_path / "state"), "HOME": "/nowhere"}
    assert plan_directory(tmp_path / "tune", mine) == tmp_path / "state" / "tpuwatch" / "tune"
    make_directory(tmp_path / "tune" / "launches", mode=0o1733)
    assert plan_directory(tmp_path / "tune", mine) == tmp_path / "tune"
    assert stat.S_IMODE((tmp_path / "tune" / "launches").stat().st_mode) == 0o1733


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root to be somebody else")
def test_a_state_directory_that_may_not_be_entered_is_like_none(tmp_path: Path) -> None:
    (tmp_path / "tune" / "launches").mkdir(parents=True)
    tmp_path.chmod(0o700)
    os.seteuid(65534)
    try:
        assert plan_directory(tmp_path / "tune", {"HOME": "/h"}) == Path("/h/.local/state/tpuwatch/tune")
    finally:
        os.seteuid(0)


def test_the_daemons_directory_is_the_configured_one(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text(f'[state]\ndir = "{tmp_path}"\n')
    (tmp_path / "tune" / "launches").mkdir(parents=True)
    assert plan_directory(None, {"TPUWATCH_CONFIG": str(config)}) == tmp_path / "tune"


def test_ones_own_directory_is_where_the_state_of_programs_is() -> None:
    assert own_directory({"HOME": "/home/me"}) == Path("/home/me/.local/state/tpuwatch/tune")
    assert own_directory({"HOME": "/home/me", "XDG_STATE_HOME": "here"}) == Path("/home/me/.local/state/tpuwatch/tune")
    assert own_directory({"XDG_STATE_HOME": "/s"}) == Path("/s/tpuwatch/tune")


# -- what it makes of an environment


def plan(**values: str) -> Plan:
    return Plan("bert", 0.0, tuple(Setting(name, value, "so") for name, value in values.items()), DECISION)


def after(environ: dict[str, str], given: Given) -> dict[str, str]:
    """The environment with what is given."""
    return {**{name: value for name, value in environ.items() if name not in given.unset}, **given.set}


def test_what_the_operator_has_set_wins_and_is_told() -> None:
    given = environment(plan(TPU_A="1", TPU_B="2", TPU_C="3"), {"TPU_A": "9", "TPU_B": "2", "HOME": "/"})
    assert given.kept == (Kept("TPU_A", "9", "1"),)
    assert given.set.pop("TPUWATCH_SUMS")
    assert given == Given({"TPU_C": "3", WORKLOAD_VARIABLE: "bert", SET_VARIABLE: "TPU_C"}, given.kept)


def test_an_empty_value_is_a_value() -> None:
    assert environment(plan(TPU_A="1"), {"TPU_A": ""}).kept == (Kept("TPU_A", "", "1"),)


def test_what_tpuwatch_set_before_is_renewed_and_what_is_over_is_taken_back() -> None:
    before = after({}, environment(plan(TPU_A="1", TPU_B="2", LIBTPU_INIT_ARGS="--a=1"), {}))
    assert ours(before) == {"TPU_A", "TPU_B", "LIBTPU_INIT_ARGS"}
    given = environment(plan(TPU_A="5", LIBTPU_INIT_ARGS="--a=1"), before)
    assert (given.set["TPU_A"], given.unset, given.kept) == ("5", ("TPU_B",), ())
    assert ours(after(before, given)) == {"TPU_A", "LIBTPU_INIT_ARGS"}


def test_what_the_operator_changed_since_is_his_own() -> None:
    environ = after({}, environment(plan(TPU_A="1", TPU_B="2"), {})) | {"TPU_A": "7"}
    given = environment(plan(TPU_A="5", TPU_B="6"), environ)
    assert given.kept == (Kept("TPU_A", "7", "5"),)
    assert (given.set["TPU_B"], given.set[SET_VARIABLE]) == ("6", "TPU_B")


@pytest.mark.parametrize("sums", [None, "", "x", ",,,,"])
def test_marks_that_make_no_sense_harm_nothing(sums: str | None) -> None:
    environ = {"TPU_A": "1", SET_VARIABLE: "TPU_A,,TPU_GONE,=", **({} if sums is None else {"TPUWATCH_SUMS": sums})}
    assert ours(environ) == ({"TPU_A"} if sums is None else set())


@pytest.mark.parametrize("name", ["PATH", "LD_PRELOAD", "HOME", "TPU_LIBRARY_PATH", "TPUWATCH_WORKLOAD"])
def test_what_no_plan_may_set_is_not_taken_back_whatever_the_marks_say(name: str) -> None:
    environ = {"TPU_A": "1", name: "bert"}
    environ |= marks("bert", environ)
    assert environment(plan(), environ).unset == ("TPU_A",)


def test_without_sums_nothing_is_taken_back() -> None:
    assert environment(plan(), {"TPU_A": "1", "PATH": "/bin", SET_VARIABLE: "PATH,TPU_A"}).unset == ()


def test_flags_are_merged_and_the_operators_win() -> None:
    environ = {"LIBTPU_INIT_ARGS": "--b=9 'x'"}
    given = environment(plan(LIBTPU_INIT_ARGS="--a=1 --b=2"), environ)
    assert given.set["LIBTPU_INIT_ARGS"] == "--a=1 --b=9 'x'"
    assert given.kept == (Kept("LIBTPU_INIT_ARGS", "--b=9 'x'", "--a=1 --b=2"),)
    again = environment(plan(LIBTPU_INIT_ARGS="--a=1"), after(environ, given))
    assert (again.set["LIBTPU_INIT_ARGS"], again.kept, again.unset) == ("--a=1 --b=9 'x'", (), ())
    there = environment(plan(LIBTPU_INIT_ARGS="--a=1"), {"LIBTPU_INIT_ARGS": "--a=1"})
    assert ("LIBTPU_INIT_ARGS" in there.set, there.kept) == (False, ())


values = st.dictionaries(st.sampled_from(["TPU_A", "TPU_B", "TPU_C"]), st.sampled_from(["", "1", "2"]))


@settings(deadline=None)
@any_of(values, values, values)
def test_the_operators_own_values_are_never_touched(own: dict[str, str], first: Any, second: Any) -> None:
    environ = dict(own)
    for each in (first, second, first):
        given = environment(plan(**each), environ)
        environ = after(environ, given)
        assert own.items() <= environ.items()
        assert {name for name in environ if name.startswith("TPU_")} == own.keys() | each.keys()
        assert {name: environ[name] for name in each.keys() - own.keys()} == {
            name: each[name] for name in each.keys() - own.keys()
        }


def test_pins_take_the_place_of_settings_and_flags_join() -> None:
    found = pinned(plan(TPU_A="1", LIBTPU_INIT_ARGS="--logbuflevel=-1").settings, {"TPU_A": "2", "TPU_B": "3"})
    assert {setting.name: setting.value for setting in found} == {
        "TPU_A": "2",
        "LIBTPU_INIT_ARGS": "--logbuflevel=-1",
        "TPU_B": "3",
    }
    (joined,) = pinned([Setting("LIBTPU_INIT_ARGS", "--logbuflevel=-1", "")], {"LIBTPU_INIT_ARGS": "--xla_x=1"})
    assert joined.value == "--logbuflevel=-1 --xla_x=1"
    (own,) = pinned([Setting("LIBTPU_INIT_ARGS", "--logbuflevel=-1", "")], {"LIBTPU_INIT_ARGS": "--logbufsecs=9"})
    assert own.value == "--logbufsecs=9"


def test_a_plan_is_renewed_by_what_holds_now() -> None:
    old = plan(TPU_LOG_DIR="/old", TPU_STDERR_LOG_LEVEL="0", TPU_PREMAPPED_BUFFER_SIZE="4096", TPU_PIN="1")
    new = renewed(old, [Setting("TPU_LOG_DIR", "/new", "")], {"TPU_PIN": "2"})
    found = {setting.name: setting.value for setting in new.settings}
    assert found == {SIZE: "4096", "TPU_PIN": "2", "TPU_LOG_DIR": "/new"}


def test_without_a_history_the_size_is_left_to_libtpu() -> None:
    fresh = fresh_plan("bert", (Setting("TPU_MIN_LOG_LEVEL", "0", ""),), 5.0, config="c")
    assert (fresh.decision.step, fresh.decision.size_bytes, fresh.config) == (Step.START, None, "c")
    assert "no history" in fresh.decision.reasons[0]


def test_a_start_loads_nothing_heavy() -> None:
    script = """
import sys, tpuwatch.tune.prepare, tpuwatch.tune.envfile, tpuwatch.tune.variables, tpuwatch.cli.env
heavy = {"pydantic", "hyperscan", "prometheus_client", "http", "grpc", "google", "sqlite3", "re2", "watchdog",
         "asyncio", "subprocess", "logging", "tomli", "difflib", "tpuwatch.config"}
print(sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
