"""The examples of docs/heartbeats.md, run as they stand there by an interpreter, and the heartbeats that they send."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
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
    """What a program says that ends well. It is heard while it runs: the queue of the socket holds ten messages."""
    with (
        tempfile.TemporaryDirectory() as directory,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end,
        ThreadPoolExecutor(1) as pool,
    ):
        listener.bind(f"{directory}/socket")
        end.connect(f"{directory}/socket")
        own = {"PYTHONPATH": str(ROOT), SOCKET_VARIABLE: f"{directory}/socket", "PATH": os.defpath, **environ}
        run = pool.submit(
            subprocess.run, [python, "-c", code], env=own, cwd=directory, capture_output=True, text=True, timeout=300
        )
        run.add_done_callback(lambda _: end.send(b""))  # behind all that it has said
        said = []
        while message := listener.recv(4096):
            said.append(json.loads(message))
        done = run.result()
        assert done.returncode == 0, done.stderr
        return said
