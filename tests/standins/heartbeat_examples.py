"""The examples of docs/heartbeats.md, run as they stand there by an interpreter, and the heartbeats that they send."""

from __future__ import annotations

import json
import os
import re
import select
import socket
import subprocess
import tempfile
from typing import Any, Final

from tests.paths import ROOT
from tpuwatch.workload import SOCKET_VARIABLE

PAGE: Final = (ROOT / "docs" / "heartbeats.md").read_text(encoding="utf-8")
FRAMEWORKS: Final = ("jax", "torch", "keras")
EXAMPLES: Final = {
    next((name for name in FRAMEWORKS if f"import {name}\n" in code), f"python {number}"): code
    for number, code in enumerate(re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
}


def heartbeats_of(code: str, python: str, **environ: str) -> list[dict[str, Any]]:
    """What a program says that ends well."""
    with tempfile.TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"{directory}/socket")
        own = {"PYTHONPATH": str(ROOT), SOCKET_VARIABLE: f"{directory}/socket", "PATH": os.defpath, **environ}
        done = subprocess.run(
            [python, "-c", code], env=own, cwd=directory, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr
        said = []
        while select.select([listener], [], [], 0)[0]:
            said.append(json.loads(listener.recv(4096)))
        return said
