"""LIBTPU_INIT_ARGS as libtpu takes it apart, and what is added to it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tpuwatch.libtpu.flags import UNBUFFERED, flag_name, merged, merged_all, names, whole_flags


@pytest.mark.parametrize(
    ("arguments", "result"),
    [
        ("", "--logbuflevel=-1"),
        ("   ", "--logbuflevel=-1"),
        ("--xla_tpu_scoped_vmem_limit_kib=32768", "--logbuflevel=-1 --xla_tpu_scoped_vmem_limit_kib=32768"),
        ("--a='x y'  --b=\"z\"", "--logbuflevel=-1 --a='x y'  --b=\"z\""),
        ("garbage", "--logbuflevel=-1 garbage"),
        ("--waits_for_a_value", "--logbuflevel=-1 --waits_for_a_value"),
        ("-- --logbuflevel=3", "--logbuflevel=-1 -- --logbuflevel=3"),
        ("--logbuflevels=3", "--logbuflevel=-1 --logbuflevels=3"),
        ("--a=\t--logbuflevel=3", "--logbuflevel=-1 --a=\t--logbuflevel=3"),
    ],
)
def test_the_flag_is_added_before_what_is_there(arguments: str, result: str) -> None:
    assert merged(arguments, UNBUFFERED) == result


@pytest.mark.parametrize(
    "arguments",
    [
        "--logbuflevel=-1",
        "--logbuflevel=0 --a=1",
        "-logbuflevel=2",
        "--a=1 --logbuflevel 0",
        "--logbuflevel",
        "--logbufsecs=30",
        "-logbufsecs 1",
    ],
)
def test_what_the_operator_says_of_buffering_stays(arguments: str) -> None:
    assert merged(arguments, UNBUFFERED) == arguments


def test_only_a_flag_can_be_merged() -> None:
    with pytest.raises(ValueError, match="no flag"):
        merged("", "-1")
    assert [flag_name(word) for word in ("-1", "x", "--", "-", "--a=b=c", "-a")] == [None, None, None, None, "a", "a"]


def test_several_flags_keep_their_order_and_their_values() -> None:
    assert whole_flags("--a 1 loose -b=2 x --c -3 y") == ["--a 1", "-b=2", "--c -3"]
    assert merged_all("--b=9", "--a=1 loose --b=2 --c 3") == "--a=1 --c 3 --b=9"


word = st.one_of(
    st.sampled_from(["--", "-", "-1", "--logbuflevel=0", "-logbuflevel", "--logbufsecs=1", "'--a", "x"]),
    st.text(st.characters(codec="utf-8", exclude_characters=" \0"), max_size=8),
    st.builds("--{}={}".format, st.sampled_from("abc"), st.text("x'\"\\-=", max_size=4)),
)
texts = st.lists(word).map(" ".join)


@settings(deadline=None)
@given(texts, texts)
def test_merging_keeps_what_is_there_adds_nothing_twice_and_is_done_once(arguments: str, flags: str) -> None:
    for result in (merged(arguments, UNBUFFERED), merged_all(arguments, flags)):
        assert result.endswith(arguments if arguments.strip(" ") else "")
        added = [flag_name(flag) for flag in whole_flags(result.removesuffix(arguments))]
        assert not set(added) & names(arguments)
        assert len(added) == len(set(added))
    once = merged(arguments, UNBUFFERED)
    assert merged(once, UNBUFFERED) == once
    assert names(once) & {"logbuflevel", "logbufsecs"}
