"""Draw docs/demo.svg: what `tpuwatch demo` shows on a terminal. Run by `make picture`."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from html import escape
from pathlib import Path

PICTURE = Path(__file__).with_name("demo.svg")
COMMAND = (sys.executable, "-m", "tpuwatch", "demo")
COLUMNS, CELL, ROW, MARGIN = 80, 7.82, 17, 16  # CELL and ROW are the pixels of one character at 13 px
STYLES = {
    "1": "font-weight:bold",
    "2": "fill:#8b949e",
    "31": "fill:#ff7b72",
    "32": "fill:#7ee787",
    "33": "fill:#e3b341",
    "34": "fill:#79c0ff",
}
_SGR = re.compile(r"\x1b\[([0-9;]*)m")


def record(command: tuple[str, ...]) -> list[str]:
    """The lines that a command leaves on a terminal, with their colour codes. Raises CalledProcessError if it fails."""
    reader, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}
    environment.pop("NO_COLOR", None)
    with subprocess.Popen(command, stdin=terminal, stdout=terminal, env=environment) as process:  # noqa: S603 - our own program
        os.close(terminal)
        printed = b"".join(iter(lambda: _read(reader), b""))
        os.close(reader)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return [line.rstrip("\r").rpartition("\r\x1b[K")[2] for line in printed.decode().rstrip().split("\n")]


def draw(lines: list[str]) -> str:
    """An SVG of the lines, in whatever monospaced font the reader has."""
    width = round(COLUMNS * CELL + 2 * MARGIN)
    height = len(lines) * ROW + 2 * MARGIN
    rows = "\n".join(
        f'<text x="{MARGIN}" y="{MARGIN + ROW * number - 4}">{_spans(line)}</text>'
        for number, line in enumerate(lines, 1)
        if line
    )
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return f"""<svg xmlns="http://www.w3.org/2000/svg" {size} xml:space="preserve" role="img">
<title>tpuwatch demo in a terminal</title>
<style>
text {{ font: 13px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace; fill: #e6edf3; white-space: pre }}
</style>
<rect width="100%" height="100%" rx="8" fill="#0d1117"/>
{rows}
</svg>
"""


def _read(reader: int) -> bytes:
    try:
        return os.read(reader, 65536)
    except OSError:  # how Linux says that the terminal's last writer has gone
        return b""


def _spans(line: str) -> str:
    text, *styled = _SGR.split(line)
    spans = [escape(text)]
    for codes, part in zip(styled[::2], styled[1::2], strict=True):
        style = ";".join(STYLES[code] for code in codes.split(";") if code in STYLES)
        if part:
            spans.append(f'<tspan style="{style}">{escape(part)}</tspan>' if style else escape(part))
    return "".join(spans)


if __name__ == "__main__":
    PICTURE.write_text(draw(["$ tpuwatch demo", "", *record(COMMAND)]), encoding="utf-8")
