"""One model in each front end of `tpuwatch preflight`: what each says that it needs, and its largest batch.

python -m tests.proof.preflight.fronts
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.paths import ROOT
from tests.proof.preflight.largest import GIB, PYTHON, compiled

HERE = "tests.proof.preflight.same"
BATCH, STEP = 131072, 1024
FRONTS = {
    "JAX": (f"{HERE}:jax_step", "--args", f"{HERE}:jax_arguments"),
    "Keras": (f"{HERE}:keras_model",),
    "tf.function": (f"{HERE}:tensorflow_step", "--args", f"{HERE}:tensorflow_arguments"),
}


def main() -> int:
    print(f"{'front end':12} needed GiB with {BATCH}  arguments  outputs  shared  temporaries  largest batch")
    for name, words in FRONTS.items():
        largest = compiled(*words, "--tpu", "v5e-1", "--max-batch", str(1 << 18), "--batch-step", str(STEP))[
            "largest_batch"
        ]
        _print(name, compiled(*words, "--tpu", "v5e-1", "--batch", str(BATCH)), str(largest))
    with tempfile.TemporaryDirectory() as name:
        whole = compiled(_written(Path(name), BATCH), "--tpu", "v5e-1")
        fits, refused = 0, 1 << 8  # steps; a file has one batch
        while refused - fits > 1:
            steps = (fits + refused) // 2
            module = _written(Path(name), steps * STEP)
            if compiled(module, "--tpu", "v5e-1", "--no-code")["fits"]:
                fits = steps
            else:
                refused = steps
        _print("StableHLO", whole, str(fits * STEP))
    return 0


def _written(directory: Path, batch: int) -> str:
    path = directory / f"{batch}.mlir"
    code = f"import {HERE} as same; print(same.stablehlo({batch}))"
    done = subprocess.run([PYTHON, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    path.write_text(done.stdout)
    return str(path)


def _print(name: str, result: dict[str, object], largest: str) -> None:
    trial = result["trial"]
    assert isinstance(trial, dict)
    parts = [trial[f"{key}_bytes"] / GIB for key in ("needed", "arguments", "outputs", "shared", "temporaries")]
    needed, *rest = parts
    figures = "".join(f"{one:>{width}.3f}" for one, width in zip(rest, (11, 9, 8, 13), strict=True))
    print(f"{name:12}{needed:>22.3f}{figures}{largest:>15}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
