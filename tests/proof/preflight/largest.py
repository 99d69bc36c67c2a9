"""The error of `tpuwatch preflight --max-batch`: what it finds, beside what fits when each batch is tried.

    python -m tests.proof.preflight.largest [NAME …]

Prints a line for each program: the largest batch that was found, the largest that fits among the next `BEYOND`
multiples of the step (each is compiled by itself), the error, and how long both took.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.paths import ROOT

PYTHON = Path(os.environ.get("TPUWATCH_PREFLIGHT_PYTHON", ROOT / ".venv-preflight" / "bin" / "python"))
HERE = "tests.proof.preflight"
BEYOND = 3
# Function, factory, step.
PROGRAMS = {
    "gpt2": (f"{HERE}.gpt2:step", f"{HERE}.gpt2:arguments", 8),
    "dense step": (f"{HERE}.programs:step", f"{HERE}.programs:arguments", 64),
    "dense forward": (f"{HERE}.programs:loss", f"{HERE}.programs:arguments", 64),
    "transformer": (f"{HERE}.public:transformer", f"{HERE}.public:transformer_arguments", 8),
    "resnet": (f"{HERE}.public:resnet", f"{HERE}.public:resnet_arguments", 64),
    "lstm": (f"{HERE}.public:lstm", f"{HERE}.public:lstm_arguments", 1024),
    "embedding": (f"{HERE}.public:embedding", f"{HERE}.public:embedding_arguments", 65536),
    "unet": (f"{HERE}.public:unet", f"{HERE}.public:unet_arguments", 64),
    "deep": (f"{HERE}.public:deep", f"{HERE}.public:deep_arguments", 8),
    "keras": (f"{HERE}.programs:model", None, 256),
}
_UP_TO = 1 << 22


def main(names: list[str]) -> int:
    print("program          found  fits-by-trial  error  trials  search-s  trials-s")
    worst = 0.0
    for name in names or list(PROGRAMS):
        function, factory, step = PROGRAMS[name]
        words = [function, *(["--args", factory] if factory else []), "--tpu", "v5e-1"]
        started = time.monotonic()
        result = _preflight(*words, "--max-batch", str(_UP_TO // step * step), "--batch-step", str(step))
        found, search = result["largest_batch"], time.monotonic() - started
        started = time.monotonic()
        true = found or 0
        for more in range(1, BEYOND + 1):
            batch = (found or 0) + more * step
            if _preflight(*words, "--batch", str(batch))["fits"]:
                true = batch
        error = (true - (found or 0)) / true if true else 0.0
        worst = max(worst, error)
        tried = len(result["trials"])
        took = time.monotonic() - started
        print(f"{name:15}{found!s:>7}{true:>15}{error:>7.1%}{tried:>8}{search:>10.0f}{took:>10.0f}", flush=True)
    print(f"Largest error: {worst:.1%}.")
    return 0 if worst == 0 else 1


def _preflight(*words: str) -> Any:
    command = [sys.executable, "-m", "tpuwatch", "preflight", *words, "--python", str(PYTHON), "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    (result,) = json.loads(done.stdout or "{}").get("results", [None])
    if result is None or result["fits"] is None:
        raise SystemExit(f"{' '.join(words)}: {done.stderr or result}")
    return result


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
