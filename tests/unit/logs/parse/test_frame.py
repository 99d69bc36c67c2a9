"""Headers, launchers' prefixes, and times without a year."""

from __future__ import annotations

import time

import pytest

from tpuwatch.logs.parse.frame import (
    LIBTPU_HEADER,
    TEXT_BREAK,
    TEXT_HEADER,
    Times,
    author_of,
    clean_line,
    decoration_length,
    parse_header,
)

NOW = time.mktime((2026, 3, 1, 12, 0, 0, 0, 0, -1))


@pytest.mark.parametrize(
    ("line", "severity", "thread", "source", "message"),
    [
        (b"I1120 13:52:58.454943   32360 b295d63588a.cc:792] Linux", "I", 32360, b"b295d63588a.cc:792", b"Linux"),
        (b"F0000 00:00:1713630999.125092  494916 pjrt_client.cc:158] No", "F", 494916, b"pjrt_client.cc:158", b"No"),
        (
            b"W0108 00:47:24.462080 4582849984 tpu_metadata.py:97] Failed",
            "W",
            4582849984,
            b"tpu_metadata.py:97",
            b"Failed",
        ),
        (
            b"2022-10-15 18:07:41.780474: W external/tpu/tpu_client.cc:617] Long",
            "W",
            None,
            b"external/tpu/tpu_client.cc:617",
            b"Long",
        ),
        (
            b"2020-05-04 09:05:40.721128: E    1578 xla_client/xla_util.cc:76]   Shape",
            "E",
            1578,
            b"xla_client/xla_util.cc:76",
            b"  Shape",
        ),
    ],
)
def test_headers_of_all_kinds_are_read(
    line: bytes, severity: str, thread: int | None, source: bytes, message: bytes
) -> None:
    header = parse_header(line, 0, TEXT_HEADER, decorated=True)
    assert header is not None
    assert (header.severity, header.thread, header.source) == (severity, thread, source)
    assert line[header.length :] == message
    assert clean_line(line, TEXT_HEADER, decorated=True) == message
    behind = parse_header(b"x\n[rank3]: " + line, 2, TEXT_HEADER, decorated=True)
    assert behind is not None
    assert behind.raw == header.raw


@pytest.mark.parametrize(
    "line", [b"", b"I am", b"I1120", b"I1120 13:52:58 7 no source", b"INFO:tensorflow:x", b"E\xff\xff"]
)
def test_what_is_no_header_is_none(line: bytes) -> None:
    assert parse_header(line, 0, LIBTPU_HEADER, decorated=False) is None


def test_a_header_ends_with_its_line() -> None:
    assert parse_header(b"I1120 13:52:58.454943\n 7 a.cc:1] x", 0, TEXT_HEADER, decorated=True) is None


@pytest.mark.parametrize(
    ("line", "length"),
    [
        (b"loss: 3.5", 0),
        (b"step 100: loss", 0),
        (b"12: step", 4),
        (b"2022-01-17 20:08:33.794365: F external/x.cc:34] gone", 0),  # TensorFlow's own
        (b"2022-01-17 20:08:33 10.0.0.1 [0] epoch", 20),
    ],
)
def test_only_launchers_prefixes_are_decorations(line: bytes, length: int) -> None:
    assert decoration_length(line) == length


@pytest.mark.parametrize(
    "line",
    [
        b"[ERROR][train.py:3] x",
        b"| WARNING  | x",
        b"Traceback (most recent call last):",
        b"jax.errors.JaxRuntimeError: X",
        b"ERROR: (gcloud.x)",
        b"*** SIGSEGV",
        b"step 7 loss 3.21",
        b"global_step=7 train/loss=3.2",
        b"completed step: 7, seconds: 1.5, TFLOP/s/device: 120.1, loss: 2.1",
        b"Epoch [3] loss: 0.7",
        b"Epoch 3:  45%|####     | 45/100 [00:10<00:12, 4.5it/s]",
        b" 45/600 [==>.......] - ETA: 12s - loss: 0.6931",
        b"{'loss': 0.3, 'epoch': 1.0}",
    ],
)
def test_what_begins_something_new(line: bytes) -> None:
    assert TEXT_BREAK.match(line)


@pytest.mark.parametrize("line", [b"Step 1: install jax", b"steps are lost", b"loss of step 7", b"  step 7 loss 3.21"])
def test_what_people_write_of_steps_begins_nothing_new(line: bytes) -> None:
    assert not TEXT_BREAK.match(line)


def at(times: Times, line: bytes) -> float | None:
    header = parse_header(line, 0, TEXT_HEADER, decorated=False)
    assert header is not None
    return times.of(header)


def test_without_a_year_a_time_is_the_last_such_day() -> None:
    assert at(Times(NOW), b"I0301 11:00:00.500000 7 a.cc:1] x") == pytest.approx(NOW - 3600 + 0.5)
    assert at(Times(NOW), b"I0302 11:00:00.000000 7 a.cc:1] x") == pytest.approx(
        NOW + 23 * 3600
    )  # a clock may be ahead
    last_year = time.mktime((2025, 11, 20, 11, 0, 0, 0, 0, -1))
    assert at(Times(NOW), b"I1120 11:00:00.000000 7 a.cc:1] x") == pytest.approx(last_year)


def test_the_files_first_line_has_the_year() -> None:
    times = Times(NOW)
    times.learn(b"Log file created at: 2024/12/31 23:59:00\nRunning")
    assert times.created == (2024, 12, 31)
    assert at(times, b"I1231 23:59:30.000000 7 a.cc:1] x") == time.mktime((2024, 12, 31, 23, 59, 30, 0, 0, -1))
    assert at(times, b"I0101 00:00:00.000000 7 a.cc:1] x") == time.mktime((2025, 1, 1, 0, 0, 0, 0, 0, -1))


@pytest.mark.parametrize("date", [b"1332", b"0230", b"9999", b"0012"])
def test_an_impossible_date_has_no_time_or_a_near_one(date: bytes) -> None:
    when = at(Times(NOW), b"I" + date + b" 11:00:00.000000 7 a.cc:1] x")
    assert when is None or abs(when - NOW) < 2 * 366 * 86_400


def test_tensorflow_has_the_year() -> None:
    when = at(Times(NOW), b"2022-10-15 18:07:41.250000: W a/b.cc:617] x")
    assert when == pytest.approx(time.mktime((2022, 10, 15, 18, 7, 41, 0, 0, -1)) + 0.25)


@pytest.mark.parametrize("severity", [b"INFO", b"ERROR"])
def test_a_loggers_header_is_removed_and_only_that_of_a_traceback_joins_the_line_to_the_one_before(
    severity: bytes,
) -> None:
    line = b"(EngineCore_0 pid=4711) " + severity + b" 11-22 10:11:12 [core.py:398] said so"
    assert clean_line(line, TEXT_HEADER, decorated=True) == b"said so"
    breaks = TEXT_BREAK.match(line, decoration_length(line)) is not None
    assert breaks is (severity == b"INFO")


@pytest.mark.parametrize(
    "prefix",
    [
        b"[2025-01-02 03:04:05,678] ",
        b"[pod/train-0-0-abcde/train] ",
        b"[my-tpu-w-3] ",
        b"> > ",
        b"[default3]:",
        b"[default0]:[rank0]: ",
        b"\x1b[36m(Worker pid=4711, ip=10.0.0.2)\x1b[0m ",
    ],
)
def test_prefixes_of_launchers_terminals_and_mail_are_removed(prefix: bytes) -> None:
    assert clean_line(prefix + b"said so", TEXT_HEADER, decorated=True) == b"said so"


@pytest.mark.parametrize(
    ("prefix", "author"),
    [
        (b"(worker1, rank=1, pid=1234, ip=10.0.0.2) ", "(worker1,rank=1,pid=1234,ip=10.0.0.2)"),
        (b"\x1b[36m(head, rank=0, pid=1234)\x1b[0m ", "(head,rank=0,pid=1234)"),
        (b"2026-09-01T10:00:00+0000 t1v-n-1-w-0 train[4711]: ", "t1v-n-1-w-0train[4711]:"),
        (b"2026-09-01T10:00:00.123456+00:00 host python3[7]: ", "hostpython3[7]:"),
        (b"2026-09-01T10:00:00Z host kernel: ", "hostkernel:"),
    ],
)
def test_prefixes_name_the_author(prefix: bytes, author: str) -> None:
    assert author_of(prefix + b"ValueError: no", 0) == author
    assert clean_line(prefix + b"ValueError: no", TEXT_HEADER, decorated=True) == b"ValueError: no"


@pytest.mark.parametrize(
    ("quoted", "message"),
    [
        (b"no room", b"no room"),
        (b"E0901 10:00:00.000001 7 a.cc:1] no room\\n", b"no room"),
        (b"[rank3]: no room\\r\\n", b"no room"),
        (rb"File \"a.py\", \\ \u00e9\n", 'File "a.py", \\ é'.encode()),
        (rb"two \n lines\n", b"two   lines"),
        (rb"wrong \q\n", rb"wrong \q"),
    ],
)
@pytest.mark.parametrize("attributes", [b"", b'"attrs":{"tag":"a"},'])
def test_what_docker_quotes_in_a_file_is_read_as_it_was_written(
    quoted: bytes, message: bytes, attributes: bytes
) -> None:
    line = b'{"log":"' + quoted + b'","stream":"stderr",' + attributes + b'"time":"2026-09-01T10:00:00.1Z"}'
    assert clean_line(line, TEXT_HEADER, decorated=True) == message
    assert author_of(line.replace(b"[rank3]: ", b""), 0) == ""


def test_another_object_with_a_log_is_no_line_of_docker() -> None:
    line = b'{"log":"no room","level":"error"}'
    assert clean_line(line, TEXT_HEADER, decorated=True) == line
    assert TEXT_BREAK.match(line)
