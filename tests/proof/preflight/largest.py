"""The error of `tpuwatch preflight --max-batch`: what it finds, beside what fits when each batch is tried.

    python -m tests.proof.preflight.largest [NAME …]

Prints a line for each program: the largest batch that was found, the largest that fits among the next `BEYOND`
multiples of the step (each is compiled by itself), the error; how many batches were tried and how many of them were
compiled to their end; the seconds of the search, and of one compilation of what was found; what that needs by the
compiler's figures, and by what is known of it before its code is made.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.paths import ROOT

PYTHON = Path(os.environ.get("TPUWATCH_PREFLIGHT_PYTHON", ROOT / ".venv-preflight" / "bin" / "python"))
HERE = "tests.proof.preflight"
BEYOND = 3
GIB = 1 << 30
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
_UP_TO = 1 << 26


def main(names: list[str]) -> int:
    print(f"{'program':15}  found  by trial  error  trials  whole  search s  compile s  needed GiB  assigned GiB")
    worst = 0.0
    for name in names or list(PROGRAMS):
        function, factory, step = PROGRAMS[name]
        words = [function, *(["--args", factory] if factory else []), "--tpu", "v5e-1"]
        result = compiled(*words, "--max-batch", str(_UP_TO // step * step), "--batch-step", str(step))
        true = found = result["largest_batch"] or 0
        for batch in range(found + step, found + (BEYOND + 1) * step, step):
            if compiled(*words, "--batch", str(batch))["fits"]:
                true = batch
        error = (true - found) / true if true else 0.0
        worst = max(worst, error)
        whole = [one for one in result["trials"] if one["fits"] and one["unfinished"] is None]
        trial = result["trial"]
        assigned = compiled(*words, "--batch", str(found), "--no-code")["trial"] if found else trial
        print(
            f"{name:15}{found:>7}{true:>10}{error:>7.1%}{len(result['trials']):>8}{len(whole):>7}"
            f"{result['seconds']:>10.0f}{trial['compile_seconds']:>11.0f}"
            f"{trial['needed_bytes'] / GIB:>12.3f}{assigned['needed_bytes'] / GIB:>14.3f}"
            f"{'  ' + trial['unfinished'] if trial['unfinished'] else ''}",
            flush=True,
        )
    print(f"Largest error: {worst:.1%}.")
    return 0 if worst == 0 else 1


def compiled(*words: str) -> Any:
    """The result of the command, for one TPU."""
    command = [sys.executable, "-m", "tpuwatch", "preflight", *words, "--python", str(PYTHON), "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    (result,) = json.loads(done.stdout or "{}").get("results", [None])
    if result is None or result["fits"] is None:
        raise SystemExit(f"{' '.join(words)}: {done.stderr or result}")
    return result


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
