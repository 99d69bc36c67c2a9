"""What the user's interpreter runs: without JAX, or with one that is held up."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path

from tpuwatch.program.preflight import FRONT

PARENT = """
import json, subprocess, sys
request, front, report = sys.argv[1:]
child = subprocess.Popen([sys.executable, front, request], pass_fds=[int(report)], start_new_session=True)
print(child.pid, flush=True)
child.wait()
"""


def test_it_ends_with_the_process_that_started_it_however_that_ends(tmp_path: Path) -> None:
    held = tmp_path / "held"
    os.mkfifo(held)
    (tmp_path / "jax.py").write_text(f"open({str(held)!r}).read()\n")
    reader, writer = os.pipe()
    command = [sys.executable, "-c", PARENT, json.dumps({"report": writer}), str(FRONT), str(writer)]
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    parent = subprocess.Popen(command, pass_fds=[writer], stdout=subprocess.PIPE, text=True, env=environ)
    os.close(writer)
    assert parent.stdout is not None
    child = os.pidfd_open(int(parent.stdout.readline()))
    with open(reader) as reports:
        assert json.loads(reports.readline()) == {"stage": "import"}  # from here on it waits in the import of JAX
        parent.kill()
        parent.wait()
        ended, _, _ = select.select([child], [], [], 60)
    os.close(child)
    parent.stdout.close()
    assert ended, "it goes on without anybody"
