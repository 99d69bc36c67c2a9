from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuwatch.core.json_text import parse_time
from tpuwatch.core.units import (
    MAX_QUANTITY,
    format_age,
    format_seconds,
    format_size,
    format_time,
    is_possible,
    parse_seconds,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("19.46G", round(19.46 * 1024**3)),
        ("512.0M", 512 * 1024**2),
        ("1.5T", round(1.5 * 1024**4)),
        ("28.00GiB", 28 * 1024**3),
        ("28 GB", 28 * 1024**3),
        ("4294967296", 4294967296),
        ("0x61a80", 400000),
        ("6,532,939,776 bytes", 6532939776),
        ("31451456kB", 31451456 * 1024),
        ("268435456B", 268435456),
        ("0B", 0),
        (" 4.0K ", 4096),
    ],
)
def test_parse_size(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "G", "4 GiB free", "-1", "1.2.3G", "unknown", "0x"])
def test_parse_size_says_what_it_wants(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size: write a number"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1.5s", 1.5),
        ("200ms", 0.2),
        ("2m3s", 123),
        ("1h30m", 5400),
        ("14.358642ms", 0.014358642),
        ("5 minutes", 300),
        ("60.0 seconds", 60),
        ("12", 12),
        ("250us", 0.00025),
    ],
)
def test_parse_seconds(text: str, seconds: float) -> None:
    assert parse_seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "s", "soon", "5 parsecs", "1s later"])
def test_parse_seconds_says_what_it_wants(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration: write a number"):
        parse_seconds(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1 KiB"),
        (16911433728, "15.75 GiB"),
        (1024**4 - 1, "1 TiB"),
        (-(1024**3), "-1 GiB"),
        (5 * 1024**6, "5120 PiB"),
    ],
)
def test_format_size(size: int, text: str) -> None:
    assert format_size(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 ms"),
        (0.35, "350 ms"),
        (12.5, "12.5 s"),
        (60.0, "1 min"),
        (200.0, "3 min 20 s"),
        (7200, "2 h"),
        (7500, "2 h 5 min"),
    ],
)
def test_format_seconds(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@given(st.integers(min_value=0, max_value=2**62))
def test_a_printed_size_reads_back_within_its_precision(size: int) -> None:
    assert parse_size(format_size(size)) == pytest.approx(size, rel=0.01)


NONSENSE = "9" * 400


@pytest.mark.parametrize(
    "text", [NONSENSE, f"{NONSENSE}.5G", "8388608T", f"0x{'f' * 16}", f"0x{'f' * 9000}", "9" * 9000], ids=range(6)
)
def test_no_size_is_larger_than_what_64_bits_hold(text: str) -> None:
    with pytest.raises(ValueError, match=r"too large for a size|Exceeds the limit"):
        parse_size(text)


@pytest.mark.parametrize("text", [NONSENSE, f"{NONSENSE}h", f"1h{NONSENSE}.5s", "9223372036854775808s"], ids=range(4))
def test_no_duration_is_longer_than_what_64_bits_hold(text: str) -> None:
    with pytest.raises(ValueError, match="too long for a duration"):
        parse_seconds(text)


@pytest.mark.parametrize(
    ("number", "possible"),
    [
        (0, True),
        (0.5, True),
        (MAX_QUANTITY, True),
        (MAX_QUANTITY + 1, False),
        (float(MAX_QUANTITY), False),  # which is one more
        (-1, False),
        (-0.5, False),
        (math.inf, False),
        (-math.inf, False),
        (math.nan, False),
        (10**400, False),
    ],
)
def test_what_can_be_a_number_of_something(number: float, possible: bool) -> None:
    assert is_possible(number) is possible


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan, 10**400, -(10**400), 1e300])
def test_what_is_no_number_of_anything_is_reported_in_words(number: float) -> None:
    assert format_size(number) == "an unknown amount"
    assert format_seconds(number) == "an unknown time"


@given(st.integers() | st.floats() | st.integers(0, 9000).map(lambda power: -(3**power)))
def test_every_number_can_be_reported(number: float) -> None:
    assert format_size(number)
    assert format_seconds(number)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((-3.0, "0s"), (0.4, "0s"), (43.9, "43s"), (60, "1m"), (142, "2m22s"), (3600, "1h"), (11_100, "3h5m")),
        *((86_400, "1d"), (1_051_200, "12d4h"), (float("nan"), "unknown"), (float("inf"), "unknown")),
    ],
)
def test_an_age_is_one_token(seconds: float, text: str) -> None:
    assert format_age(seconds) == text


def test_a_time_for_people_can_be_given_back() -> None:
    assert format_time(1_790_000_000.9) == "2026-09-21 14:13:20 UTC"
    assert parse_time(format_time(1_790_000_000.0)) == 1_790_000_000.0
    assert format_time(1e300) == "an unknown time"
