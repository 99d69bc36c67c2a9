"""Does a step in JAX do what PyTorch does? Prints by how much what the step changes differs, of its largest value.

The interpreter that has PyTorch runs it: python -m tests.proof.preflight.torch_values of_words
"""

from __future__ import annotations

import json
import sys
from typing import Any


def differences(name: str) -> dict[str, float]:
    """By the path of each tensor that a step changes, and "loss"."""
    import jax
    import numpy as np
    import torch

    from tests.proof.preflight import torch_programs
    from tpuwatch.program.front.torch_step import TorchStep

    torch.manual_seed(0)
    given: Any = getattr(torch_programs, name)()
    torch_programs.step(*given)  # the optimizer's state is made
    step = TorchStep(torch_programs.step, given)
    own = dict(_held(*given))
    result = jax.jit(step)(*[jax.numpy.asarray(own[one.path].detach().numpy().copy()) for one in step.lifted])
    loss = float(torch_programs.step(*given))
    found = {"loss": abs(float(result[0]) - loss) / loss}
    for number, array in zip(step.donated, result[len(result) - len(step.donated) :], strict=True):
        path = step.lifted[number].path
        value = own[path].detach().numpy()
        found[path] = float(np.abs(np.asarray(array) - value).max() / max(1e-3, np.abs(value).max()))
    return found


def _held(model: Any, optimizer: Any, *inputs: Any) -> Any:
    names = {id(weight): path for path, weight in model.named_parameters()}
    yield from model.named_parameters()
    yield from ((f"{path}.grad", weight.grad) for path, weight in model.named_parameters())
    yield from model.named_buffers()
    for weight, state in optimizer.state.items():
        yield from ((f"{names[id(weight)]}.{key}", value) for key, value in state.items())
    yield from ((f"[{number + 2}]", value) for number, value in enumerate(inputs))


if __name__ == "__main__":
    print(json.dumps(differences(sys.argv[1])))
