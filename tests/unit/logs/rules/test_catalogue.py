from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tpuwatch.logs.rules.catalogue import (
    BUILT_IN,
    Catalogue,
    for_outputs,
    for_programs,
    for_streams,
    load_catalogue,
    with_threshold,
)
from tpuwatch.logs.rules.frameworks import FRAMEWORKS, LAUNCHERS
from tpuwatch.logs.rules.marks import CHAIN_MARKS
from tpuwatch.model.causes import Cause
from tpuwatch.model.events import Remedy

GOOD = """
    [[rule]]
    id = "my-rule"
    cause = "hang"
    summary = "It hangs[[ for {wait_seconds}]][[ on {host}]]."
    match = ['watchdog barked']
    unless = ['in a test']
    severity = "WE"
    capture = [
        'after (?P<wait_seconds>{SECONDS})',
        'with (?P<free_bytes>{SIZE}) free of (?P<tasks_count>{COUNT}) in pid (?P<holder_pid>[0-9]+)',
    ]
    remedy = [
        { do = "Feed it.", source = "https://example.org/feed" },
        { do = "Feed it more.", source = "https://example.org/more", above = { wait_seconds = 60 } },
    ]
    examples = ['the watchdog barked']
    counterexamples = ['the watchdog barked in a test']
"""


def user(tmp_path: Path, *rules: str) -> Catalogue:
    (tmp_path / "mine.toml").write_text("\n".join(textwrap.dedent(rule) for rule in rules), encoding="utf-8")
    return load_catalogue([tmp_path])


def refusal(tmp_path: Path, rule: str) -> str:
    catalogue = user(tmp_path, rule, GOOD)
    assert catalogue.rule("my-rule").cause is Cause.HANG  # the others load
    assert len(catalogue.refused) == 1
    message = str(catalogue.refused[0])
    assert str(tmp_path / "mine.toml") in message
    return message


def test_built_in_rules_load_and_none_is_refused() -> None:
    catalogue = load_catalogue()
    assert catalogue.refused == ()
    assert len({rule.id for rule in catalogue.rules}) == len(catalogue.rules)
    assert {rule.family for rule in catalogue.rules} == {path.stem for path in BUILT_IN.glob("*.toml")}


def test_every_fault_and_every_mark_has_a_rule() -> None:
    rules = load_catalogue().rules
    assert {rule.cause for rule in rules} - {None} == {cause for cause in Cause if cause.is_fault}
    assert {rule.mark for rule in rules} - {None} == {
        *CHAIN_MARKS,
        "banner",
        "premapped",
        "premapped_in_use",
        "init_started",
        "init_done",
        "chips",
        "signal",
        "compiled",
        "progress",
        "tpu_named",
        "tpu_hinted",
        "other_accelerator",
        "other_vendor",
        "other_service",
        "no_metadata",
        *FRAMEWORKS,
        *LAUNCHERS,
        "oom_limit",
        "harmless",
    }


def test_a_rule_of_the_user(tmp_path: Path) -> None:
    rule = user(tmp_path, GOOD).rule("my-rule")
    assert rule.family == "mine"
    assert rule.severities == {"W", "E"}
    assert rule.recovers
    assert [anchor.literal for anchor in rule.anchors] == [b"watchdog barked"]
    text = b"x: watchdog barked after 1m30s with 1.5K free of 1,024 in pid 77"
    assert rule.search(text) == (3, 18)
    assert rule.search(text, 18) is None
    assert rule.search(text, 17) == rule.search(text, 0, 4) == (3, 18)
    assert rule.search(text, 0, 3) is None
    assert rule.search(b"watchdog barked in a test") is None
    assert rule.details(text) == {"wait_seconds": 90.0, "free_bytes": 1536, "tasks_count": 1024, "holder_pid": 77}


def test_the_summary_drops_what_is_not_known(tmp_path: Path) -> None:
    rule = user(tmp_path, GOOD).rule("my-rule")
    assert rule.describe({}) == "It hangs."
    assert rule.describe({"wait_seconds": 90.0}) == "It hangs for 1 min 30 s."
    assert rule.describe({"wait_seconds": 90.0, "host": "a"}) == "It hangs for 1 min 30 s on a."


def test_a_remedy_that_the_details_call_for_comes_first(tmp_path: Path) -> None:
    rule = user(tmp_path, GOOD).rule("my-rule")
    usual = Remedy("Feed it.", "https://example.org/feed")
    assert rule.remedy == (usual,)
    assert rule.remedy_for({"wait_seconds": 60.0}) == (usual,)
    assert rule.remedy_for({"wait_seconds": 61.0}) == (Remedy("Feed it more.", "https://example.org/more"), usual)


def test_a_match_counts_only_above_its_threshold(tmp_path: Path) -> None:
    rule = user(
        tmp_path,
        GOOD.replace("unless =", "above = { wait_seconds = 30 }\n    unless =").replace(
            "['the watchdog barked']", "[]"
        ),
    ).rule("my-rule")
    assert rule.search(b"watchdog barked after 31s") is not None
    assert rule.search(b"watchdog barked after 30s") is None
    assert rule.search(b"watchdog barked") is None


def test_a_rule_with_the_id_of_a_built_in_one_replaces_it(tmp_path: Path) -> None:
    catalogue = user(tmp_path, GOOD.replace("my-rule", "hang"))
    assert catalogue.refused == ()
    assert catalogue.rule("hang").match == ("watchdog barked",)
    assert sum(rule.id == "hang" for rule in catalogue.rules) == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("summary =", "sumary ="), "unknown key 'sumary'; did you mean 'summary'?"),
        (('cause = "hang"', 'cause = "hangs"'), "unknown cause 'hangs'; did you mean 'hang'?"),
        (('cause = "hang"', 'cause = "tune_change"'), "unknown cause 'tune_change'"),
        (('cause = "hang"', ""), "either 'cause' (a fault) or 'mark' (a fact)"),
        (('id = "my-rule"', 'id = "My Rule"'), "lower-case words joined by '-'"),
        (("['watchdog barked']", "[]"), "it has no 'match'; add one"),
        (("['watchdog barked']", "'watchdog barked'"), "'match' must be a list"),
        (("['watchdog barked']", "['[a-z]+']"), "without any fixed text of 4 bytes; add some words"),
        (("['watchdog barked']", "['watchdog (barked']"), "is not valid"),
        (("['watchdog barked']", "['(?=watchdog barked)watchdog']"), "is not valid for RE2"),
        (('"WE"', '"WX"'), "use letters of I, W, E and F"),
        (("'in a test'", "'watchdog'"), "does not recognise its own example 'the watchdog barked'"),
        (("unless = ['in a test']", ""), "recognises its own counterexample"),
        (('severity = "WE"', 'tentative = { confirm = "later" }'), "needs 'confirm' and 'clear'"),
        (('severity = "WE"', 'above = { wait_seconds = "30" }'), "must give a number for each detail"),
        (('do = "Feed it.", ', ""), "has no 'do'; say what to do"),
        (('do = "Feed it."', 'to = "Feed it."'), "unknown key 'to'"),
    ],
)
def test_a_bad_rule_is_refused_by_name(tmp_path: Path, change: tuple[str, str], words: str) -> None:
    assert change[0] in GOOD
    bad = GOOD.replace("my-rule", "bad-rule").replace(change[0].replace("my-rule", "bad-rule"), change[1])
    message = refusal(tmp_path, bad)
    assert words in message
    assert "rule bad-rule:" in message or "rule My Rule:" in message


def test_the_same_id_twice_in_a_file(tmp_path: Path) -> None:
    catalogue = user(tmp_path, GOOD, GOOD)
    assert "its id is used twice in this file" in str(catalogue.refused[0])
    assert catalogue.rule("my-rule")


@pytest.mark.parametrize(
    "text",
    ["rule = 3", "[rules]", "[[rule]\nid=", "[[rule]]\nid='a'\n[other]", "rule = " + "[" * 5000 + "]" * 5000],
    ids=["no table", "another table", "no TOML", "more than rules", "deep"],
)
def test_a_file_that_is_no_file_of_rules(tmp_path: Path, text: str) -> None:
    catalogue = user(tmp_path, text)
    assert "none of its rules is loaded" in str(catalogue.refused[0])
    assert catalogue.rule("hang")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b"# \xe4\n")
    (tmp_path / "folder.toml").mkdir()
    refused = " ".join(map(str, load_catalogue([tmp_path, tmp_path / "missing"]).refused))
    assert "latin.toml" in refused
    assert "folder.toml: cannot be read" in refused
    assert "missing: cannot list the rules" in refused


def test_hostile_text_costs_linear_time() -> None:
    text = b"out of memory " * 5000 + b"a" * 50_000
    assert all(rule.search(text) is None or rule.details(text) is not None for rule in load_catalogue().rules)


def test_a_threshold_can_be_set() -> None:
    text = b"TPU initialization is successful and it took 20s"
    plain = load_catalogue()
    patient = with_threshold(plain, Cause.SLOW_INIT, "init_seconds", 30.0)
    slow = [rule.id for rule in plain.rules if rule.cause is Cause.SLOW_INIT and rule.search(text)]
    assert len(slow) == 1
    assert patient.rule(slow[0]).search(text) is None
    assert patient.rule(slow[0]).search(text.replace(b"20s", b"31s")) is not None
    assert [rule.id for rule in patient.rules] == [rule.id for rule in plain.rules]


def test_libtpus_logs_that_grow_are_read_without_general_rules_and_with_the_marks_that_are_wanted() -> None:
    catalogue = load_catalogue()
    kept = for_streams(catalogue, {"banner"}).rules
    assert {rule.mark for rule in kept} == {None, "banner", "compiled", "oom_limit", *CHAIN_MARKS}
    assert not any(rule.general for rule in kept)
    assert any(rule.general for rule in catalogue.rules)


def test_jobs_output_that_grows_is_read_with_the_general_rules_that_need_no_whole_text() -> None:
    catalogue = load_catalogue()
    kept = for_outputs(catalogue, {"banner"}).rules
    assert {rule.mark for rule in kept} == {None, "banner", "compiled", "oom_limit", *CHAIN_MARKS}
    assert {rule for rule in catalogue.rules if rule.cause is not None} - set(kept) == {
        rule for rule in catalogue.rules if rule.cause is not None and rule.whole_text
    }
    assert any(rule.general for rule in kept)
    assert for_streams(for_outputs(catalogue, {"banner"}), {"banner"}).rules == for_streams(catalogue, {"banner"}).rules


def test_each_kind_of_rule_includes_those_before_it() -> None:
    for rule in load_catalogue().rules:
        kinds = (rule.any_program, rule.general, rule.whole_text, rule.prose)
        assert list(kinds) == sorted(kinds, reverse=True)


def test_what_programs_print_is_read_without_the_rules_for_what_people_write() -> None:
    catalogue = load_catalogue()
    left_out = set(catalogue.rules) - set(for_programs(catalogue).rules)
    assert left_out == {rule for rule in catalogue.rules if rule.family == "prose"} != set()


def test_of_what_is_not_ready_only_what_never_will_be_is_to_be_deleted() -> None:
    for rule in load_catalogue().rules:
        for one in rule.remedy:
            if rule.cause is Cause.NODE_NOT_READY and "delete" in one.do.lower() and "kubectl" not in one.do:
                ended = {"FAILED", "SUSPENDED", "PREEMPTED", "TERMINATED"}
                assert "never becomes ACTIVE" in one.do or any(state in one.do for state in ended), (rule.id, one.do)
