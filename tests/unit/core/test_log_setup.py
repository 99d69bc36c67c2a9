"""tpuwatch's own log."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from tpuwatch.core.log_setup import set_up_logging


@pytest.fixture(autouse=True)
def root_logger() -> Iterator[None]:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = before, level


def test_a_message_is_one_line_whatever_it_holds() -> None:
    stream = io.StringIO()
    set_up_logging("line", "info", stream)
    logging.getLogger("tpuwatch").warning("from a log: %s", "a\nb\x1b[2Jc\x00")
    logging.getLogger("tpuwatch").debug("not wanted")
    (line,) = stream.getvalue().splitlines()
    assert line.endswith("Z warning from a log: a b [2Jc ")


def test_json_is_one_object_a_line() -> None:
    stream = io.StringIO()
    set_up_logging("json", "debug", stream)
    try:
        int("broken\nin two")
    except ValueError:
        logging.getLogger("tpuwatch.daemon").exception("it failed")
    (line,) = stream.getvalue().splitlines()
    document = json.loads(line)
    assert (document["level"], document["message"], document["logger"]) == ("error", "it failed", "tpuwatch.daemon")
    assert "ValueError: invalid literal" in document["exception"]


def test_setting_it_up_again_does_not_double_it() -> None:
    stream = io.StringIO()
    set_up_logging("line", "info", stream)
    set_up_logging("line", "info", stream)
    logging.getLogger("tpuwatch").info("once")
    assert stream.getvalue().count("once") == 1
