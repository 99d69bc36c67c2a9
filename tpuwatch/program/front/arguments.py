"""What a program is called with."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

from .errors import StopError
from .named import named
from .torch_step import holds_torch, without_values

if TYPE_CHECKING:
    from .tpu import Tpu

_SHAPE = re.compile(r"(?P<type>[a-z]+[0-9]*)\[(?P<sides>[0-9, ]*)\]")
_TYPES = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "pred": "bool", "bool": "bool"}


class Arguments:
    """What a program is called with: from the factory that the user named, or from shapes."""

    def __init__(self, tpu: Tpu, request: dict[str, Any]) -> None:
        self.tpu = tpu
        self.name = request["arguments"]
        self.shapes = request["shapes"]
        self.factory = named(self.name) if self.name else None
        self.given = bool(self.name or self.shapes)
        self.sharded = False  # whether the factory spreads them over the devices

    def of(self, batch: int | None) -> Any:
        """A tuple or a dict of shapes."""
        if self.factory is None:
            made: Any = tuple(_shape(self.tpu.jax, text) for text in self.shapes)
        else:
            offered = {"batch": batch, "mesh": self.tpu.mesh, "devices": list(self.tpu.devices)}
            taken = inspect.signature(self.factory).parameters
            anything = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in taken.values())
            if batch is not None and "batch" not in taken and not anything:
                raise StopError("usage", f"{self.name} takes no argument named batch")
            wanted = offered if anything else taken
            chosen = {name: value for name, value in offered.items() if name in wanted and value is not None}
            self.sharded = "mesh" in chosen or "devices" in chosen
            made = self._made(chosen)
            if made is None:
                raise StopError("usage", f"{self.name} returns no arguments, but None")
        return made if isinstance(made, (tuple, list, dict)) else (made,)

    def of_another(self, batch: int | None) -> Any:
        """The same with a batch of twice the size: the sides that differ are the batch. None without a batch."""
        if batch is None or self.factory is None:
            return None
        try:
            return self.of(2 * batch)
        except Exception:  # it may refuse any batch but some
            return None

    def _made(self, chosen: dict[str, Any]) -> Any:
        """What the factory returns, without the memory for its arrays where it can be had so."""
        factory: Any = self.factory
        if self.sharded:
            return factory(**chosen)
        returned: list[Any] = []

        def make() -> Any:
            returned.append(factory(**chosen))
            return returned[0]

        try:
            with without_values():
                return self.tpu.jax.eval_shape(make)
        except Exception:  # it returns shapes already or what is PyTorch's, or looks at its own values
            return returned[0] if holds_torch(returned) else factory(**chosen)


def _shape(jax: Any, text: str) -> Any:
    """The argument that "f32[8,128]" stands for."""
    found = _SHAPE.fullmatch(text.replace(" ", ""))
    name = found["type"] if found else ""
    name = _TYPES.get(name) or re.sub(r"^u(?=[0-9])", "uint", re.sub(r"^[si](?=[0-9])", "int", name))
    try:
        kind = jax.numpy.dtype(name)
    except TypeError:
        found = None
    if not found:
        raise StopError("usage", f"{text!r} is no shape: give it as f32[8,128], bf16[64,1024] or s32[]")
    return jax.ShapeDtypeStruct(tuple(int(side) for side in found["sides"].split(",") if side), kind)
