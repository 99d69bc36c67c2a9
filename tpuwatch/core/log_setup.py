"""tpuwatch's own log: one line or one JSON object a message, on standard error."""

from __future__ import annotations

import json
import logging
import sys
from typing import TextIO

from tpuwatch.core.json_text import iso
from tpuwatch.core.text import printable

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def set_up_logging(form: str, level: str, stream: TextIO | None = None) -> None:
    """Log to `stream` (standard error) as `form`, "line" or "json", from `level` on."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_JsonFormatter() if form == "json" else _LineFormatter())
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(LEVELS[level])
    logging.getLogger("watchdog").setLevel(logging.CRITICAL)  # it reports threads that tpuwatch ends on purpose


class _LineFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        text = printable(record.getMessage())
        if record.exc_info:
            text += "".join(f"\n{printable(line)}" for line in self.formatException(record.exc_info).splitlines())
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
