"""tpuwatch's own log: one line or one JSON object a message, on standard error."""

from __future__ import annotations

import json
import logging
import sys
from typing import TextIO

from tpuwatch.jsontext import iso

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def set_up(form: str, level: str, stream: TextIO | None = None) -> None:
    """Send all messages to `stream` (standard error) as `form`, "line" or "json", from `level` on."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_JsonFormatter() if form == "json" else _LineFormatter())
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(LEVELS[level])
    logging.getLogger("watchdog").setLevel(logging.CRITICAL)  # its threads come and go by our will, and it complains


def one_line(text: str) -> str:
    """Text of others as it may stand in a log: on one line, without what a terminal would obey."""
    return "".join(char if char.isprintable() else " " for char in text)


class _LineFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        text = one_line(record.getMessage())
        if record.exc_info:
            text += "".join(f"\n{one_line(line)}" for line in self.formatException(record.exc_info).splitlines())
        return f"{iso(record.created)} {record.levelname.lower():7} {text}"


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        document = {
            "time": iso(record.created),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            "logger": record.name,
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        return json.dumps(document)
