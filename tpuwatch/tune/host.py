"""The machine that the next launch runs on: its memory, what of it is pinned, and which TPU it has."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from tpuwatch.host import ProcFs, read_memory
from tpuwatch.libtpu import generation
from tpuwatch.model import TuneHost

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tpuwatch.model import Launch

_TYPE_VARIABLE: Final = "TPU_ACCELERATOR_TYPE"
_NONE: Final[Mapping[str, str]] = MappingProxyType({})


def read_host(
    *,
    launches: Iterable[Launch] = (),
    accelerator: str = "",
    pids: Iterable[int] = (),
    environ: Mapping[str, str] | None = None,
    others: Iterable[Launch] = (),
    stored: str = "",
    root: Path = Path("/"),
) -> TuneHost:
    """Read it from the machine below `root`.

    `launches`: those of the machine, the latest last; their chips show the generation where neither `accelerator`, the
    node's type, nor `environ` does. `pids`: processes in whose cgroups the next launch will run. `others`: launches of
    other workloads whose processes live; what they have premapped is taken. `stored`: the generation by the plan that
    stands, where nothing else determines it.

    How much memory is free at the moment does not count: it is another amount a second later, and less while the
    launch before still runs.
    """
    return TuneHost(
        generation=generation_of(launches, accelerator, environ or {}) or generation(stored),
        total_bytes=read_memory(ProcFs(root / "proc"), root, pids, 0).total,
        taken_bytes=sum(one.premapped_bytes or 0 for one in others),
    )


def generation_of(launches: Iterable[Launch], accelerator: str = "", environ: Mapping[str, str] = _NONE) -> str:
    """By the node's type, an environment or the latest launch that shows it; "" where nothing does."""
    latest = list(launches)[::-1]
    names = [accelerator, environ.get(_TYPE_VARIABLE, "")]
    names += [one.chip_kind or one.environment.get(_TYPE_VARIABLE, "") for one in latest]
    return next(filter(None, map(generation, names)), "")
