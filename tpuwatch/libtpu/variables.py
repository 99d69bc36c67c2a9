"""The variables that libtpu and the frameworks read: their names, and what libtpu makes of their values.

Names are those found in libtpu 0.0.51, in JAX and in PyTorch/XLA. What a value does was tried with libtpu 0.0.51.
"""

from __future__ import annotations

import math
import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tpuwatch.core import format_size, installed, parse_size, printable
from tpuwatch.libtpu.log_settings import NAMES
from tpuwatch.model import DEFAULT_PREMAPPED_BYTES, PAGE_BYTES, SIZE, THRESHOLD

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MEASURED: Final = installed("docs/logs.md")  # the source of what was seen with a real libtpu: tpuwatch's own page
GUIDE: Final = "https://docs.cloud.google.com/tpu/docs/performance-guide"
_LAYOUT: Final = "https://github.com/pytorch/xla/blob/master/torch_xla/_internal/tpu.py"

PARTITIONS: Final = "TPU_PREMAPPED_BUFFER_PARTITION_COUNT"

_NAMES: Final = """
    ALLOW_MULTIPLE_LIBTPU_LOAD CLOUD_TPU_ACCELERATOR_TYPE CLOUD_TPU_CLUSTER_NAME CLOUD_TPU_CONSUMER_PROJECT_ID
    CLOUD_TPU_JOBSET_NAME CLOUD_TPU_NODE_ID CLOUD_TPU_TASK_ID CLOUD_TPU_ZONE LIBTPU_INIT_ARGS
    LIBTPU_CHECKPOINTING_ENABLED PJRT_DEVICE TPU_ACCELERATOR_TYPE TPU_BACKEND_CONNECTION_TEST
    TPU_BUFFER_SANITIZER_AUDIT TPU_CHIPS_PER_HOST_BOUNDS TPU_CHIPS_PER_PROCESS_BOUNDS TPU_CORE_DUMP_DIRECTORY
    TPU_EMBEDDING_SERVER_PORT TPU_HBM_REPORT_ENABLE TPU_HBM_REPORT_FREQUENCY TPU_HOSTNAME_OVERRIDE TPU_HOST_BOUNDS
    TPU_LIBRARY_PATH TPU_LOAD_LIBRARY TPU_LOG_DIR TPU_MAX_LOG_SIZE_MB TPU_MEGACORE TPU_MIN_LOG_LEVEL TPU_ML_PLATFORM
    TPU_ML_PLATFORM_VERSION TPU_NAME TPU_PREMAPPED_BUFFER_PARTITION_COUNT TPU_PREMAPPED_BUFFER_SIZE
    TPU_PREMAPPED_BUFFER_TRANSFER_THRESHOLD_BYTES TPU_PROCESS_ADDRESSES TPU_PROCESS_ADDRESSES_PATH TPU_PROCESS_BOUNDS
    TPU_PROCESS_PORT TPU_RUNTIME_AGGREGATE_NODE_METRIC TPU_RUNTIME_METRICS_ADDRESS TPU_RUNTIME_METRICS_PORTS
    TPU_RUNTIME_METRICS_UDS_PERMISSIONS TPU_RUNTIME_PRIMARY_METRIC_PORT TPU_SDK_GRPC_TIMEOUT_SEC TPU_SKIP_MDS_QUERY
    TPU_SLICE_BUILDER_DUMP_CHIP_FORCE TPU_SLICE_BUILDER_DUMP_ICI TPU_SLICE_BUILDER_HEARTBEAT_INTERVAL
    TPU_STDERR_LOG_LEVEL TPU_TOPOLOGY TPU_TOPOLOGY_ALT TPU_TOPOLOGY_WRAP TPU_VISIBLE_CHIPS TPU_VISIBLE_DEVICES
    TPU_VISIBLE_DEVICE_PATHS TPU_VLOG_LEVEL TPU_VMODULE TPU_WORKER_HOSTNAMES TPU_WORKER_ID TPU_ZONE
    """
KNOWN: Final = frozenset(_NAMES.split())
TUNED_VARIABLES: Final = (SIZE, THRESHOLD, *sorted(NAMES))  # that a plan sets by itself; overrides may name others
# Numbers up to these are no sizes in bytes: they were meant as GiB, or as MiB.
_GIB_UP_TO: Final = 64
MIB_UP_TO: Final = 1 << 14
_OWN: Final = "TPUWATCH_"  # tpuwatch's own variables
_NAME: Final = re.compile(r"(?:LIB_?)?TPU|CLOUD_TPU_|PJRT_DEVICE|ALLOW_MULTIPLE_LIBTPU", re.IGNORECASE)
_WHOLE: Final = re.compile(r"\s*\+?[0-9]{1,30}\s*", re.ASCII)  # what libtpu reads exactly
_ALIKE = 0.9  # from here on two names are taken for the same one misspelt
_MIN_LENGTH = 9  # shorter names resemble each other by chance


@dataclass(frozen=True, slots=True)
class ValueFault:
    """What is wrong with a value, what is made of it, and what to give instead."""

    text: str
    fix: str
    source: str
    certain: bool = True


def is_tpu_name(name: str) -> bool:
    """Whether a variable has to do with TPUs by its name, misspelt ones among them; tpuwatch's own do not."""
    return _NAME.match(name) is not None and not name.startswith(_OWN)


def meant(name: str) -> tuple[str, bool] | None:
    """The known name that was probably meant, and whether only case and underlines differ; None for other names."""
    if name in KNOWN:
        return None
    if known := _BY_BARE_NAME.get(_bare(name)):
        return known, True
    import difflib  # a few milliseconds, and seldom wanted

    near = difflib.get_close_matches(name.upper(), KNOWN, 1, _ALIKE) if len(name) >= _MIN_LENGTH else []
    return (near[0], False) if near else None


def judge_value(name: str, value: str) -> ValueFault | None:
    """What is wrong with a variable's value; None when nothing is, or when nothing is known of the variable."""
    rule = _RULES.get(name)
    return rule(name, value) if rule else None


def judge_values(environ: Mapping[str, str]) -> list[tuple[str, ValueFault]]:
    """Every variable of an environment that is wrong, by name: values that libtpu takes for something else, and names
    that nobody reads. Other variables than those of TPUs are not looked at. The texts are fit to be shown.
    """
    found = []
    for name in sorted(environ):
        if not is_tpu_name(name):
            continue
        shown, value, right = printable(name, 100), printable(environ[name], 100), meant(name)
        fault = _misspelt(shown, right[0], value, certain=right[1]) if right else judge_value(name, value)
        if fault is not None:
            found.append((shown, fault))
    return found


def _misspelt(name: str, known: str, value: str, *, certain: bool) -> ValueFault:
    meant = f"it is {known}" if certain else f"{known} is probably meant"
    wrong = judge_value(known, value)
    right = wrong.fix if wrong else f"`export {known}={shlex.quote(value)}`"
    return ValueFault(
        f"{name}: nobody reads that name; {meant}.", f"`unset {shlex.quote(name)}`; {right}", MEASURED, certain
    )


def leading_integer(value: str) -> int | None:
    """The number that libtpu reads from a value: the digits that it begins with. None where it reads none."""
    match = re.match(r"\s*([+-]?[0-9]{1,30})", value)
    return int(match[1]) if match else None


def premapped_bytes(variables: Mapping[str, str]) -> int | None:
    """The premapped buffer that is set, as libtpu reads it: 0 is none. None where it is left to libtpu's default, as by
    an empty value."""
    if not variables.get(SIZE):
        return None
    return max(0, leading_integer(variables[SIZE]) or 0)


def beyond_memory(variables: Mapping[str, str], total: int) -> ValueFault | None:
    """What is wrong with a premapped buffer that a host with so many bytes of memory cannot hold."""
    size = premapped_bytes(variables)
    if size is None or size < total:
        return None
    return ValueFault(
        f"{SIZE}={printable(variables[SIZE], 100)} is {format_size(size)} of pinned memory; this host has "
        f"{format_size(total)}.",
        f"export {SIZE}={half_of(total)}",
        GUIDE,
    )


def half_of(total: int) -> int:
    """The largest power of two that leaves a host at least half of its memory."""
    return 1 << max(12, (total // 2).bit_length() - 1)


def product(bounds: str) -> int | None:
    """The number of cells in bounds such as "2,2,1"; None for other text."""
    return math.prod(map(int, bounds.split(","))) if re.fullmatch(r"[0-9]{1,5}(,[0-9]{1,5}){2}", bounds) else None


def items(value: str) -> list[str]:
    """The entries of a list with commas."""
    return [item.strip() for item in value.split(",") if item.strip()]


def _bare(name: str) -> str:
    return name.replace("_", "").upper()


_BY_BARE_NAME: Final = {_bare(known): known for known in KNOWN}


def _size(name: str, value: str) -> ValueFault | None:
    if not value:
        return ValueFault(
            f"{name} is empty: libtpu takes its own size, as if it were not set, and does not turn the buffer off.",
            f"unset {name}. For another size: export {name}={2 * DEFAULT_PREMAPPED_BYTES}; for none: export {name}=0",
            MEASURED,
            certain=False,
        )
    if _WHOLE.fullmatch(value) and int(value):
        return _page(name, int(value))
    read = leading_integer(value)
    if value.strip() == "0":
        return ValueFault(
            f"{name}=0 turns the premapped buffer off without a word; transfers get slower.",
            f"If that is not meant: `unset {name}`",
            MEASURED,
            certain=False,
        )
    effect = (
        f"libtpu reads {read}, a buffer of {read} bytes"
        if read and read > 0
        else "libtpu turns the buffer off silently"
    )
    return ValueFault(f"{name}={value} is no number of bytes: {effect}.", f"`export {name}={_bytes(value)}`", MEASURED)


def _page(name: str, size: int) -> ValueFault | None:
    if size % PAGE_BYTES == 0:
        return None
    return ValueFault(
        f"{name}={size} is no multiple of {PAGE_BYTES}: libtpu takes it without a check, and asks for whole pages.",
        f"`export {name}={meant_bytes(size)}`",
        GUIDE,
    )


def meant_bytes(size: int) -> int:
    """The size in whole pages that was meant by a number: one too small for a size in bytes is one in GiB or MiB."""
    if size <= MIB_UP_TO:
        return size << 30 if size <= _GIB_UP_TO else size << 20
    return -(-size // PAGE_BYTES) * PAGE_BYTES


def _bytes(value: str) -> int:
    """The bytes that were probably meant: 4294967296 for "4GB"; libtpu's default where that is unknown."""
    try:
        size = parse_size(value)
    except ValueError:
        return DEFAULT_PREMAPPED_BYTES
    return -(-size // PAGE_BYTES) * PAGE_BYTES or DEFAULT_PREMAPPED_BYTES


def _threshold(name: str, value: str) -> ValueFault | None:
    if _WHOLE.fullmatch(value):
        return None
    return ValueFault(
        f"{name}={value} is no number of bytes; libtpu does not check it, and reads "
        f"{leading_integer(value) or 'nothing'}.",
        f"`unset {name}`; libtpu's default is the buffer's size. Or: `export {name}={_bytes(value)}`",
        MEASURED,
    )


def _partitions(name: str, value: str) -> ValueFault | None:
    count = int(value) if value.isdecimal() and value.isascii() else 0
    if count and count & (count - 1) == 0:
        return None
    below = 1 << (count.bit_length() - 1) if count else 1
    return ValueFault(
        f"{name}={value} ends the process at its start: a partition count must be a power of two.",
        f"`export {name}={below}`",
        MEASURED,
    )


def _integer(low: int, high: int, default: str) -> Callable[[str, str], ValueFault | None]:
    def rule(name: str, value: str) -> ValueFault | None:
        if re.fullmatch(r"[+-]?[0-9]{1,9}", value) and low <= int(value) <= high:
            return None
        return ValueFault(
            f"{name}={value} is no whole number from {low} to {high}; libtpu goes on with its default, {default}.",
            f"`unset {name}`, or give it a number from {low} to {high}",
            MEASURED,
        )

    return rule


def _ports(name: str, value: str) -> ValueFault | None:
    if items(value) and all(re.fullmatch(r"[0-9]{1,5}", item) and 0 < int(item) < 65536 for item in items(value)):
        return None
    return ValueFault(f"{name}={value} is no list of ports.", f"`export {name}=8431,8432,8433,8434`", _LAYOUT)


def _bounds(name: str, value: str) -> ValueFault | None:
    if product(value):
        return None
    return ValueFault(
        f"{name}={value} is no shape: it takes three whole numbers above 0, with commas.",
        f"`export {name}=1,1,1` for one chip or host, 2,2,1 for four",
        _LAYOUT,
    )


def _chips(name: str, value: str) -> ValueFault | None:
    numbers = items(value)
    if numbers and all(re.fullmatch(r"[0-9]{1,4}", number) for number in numbers) and len(set(numbers)) == len(numbers):
        return None
    return ValueFault(
        f"{name}={value} is no list of different chip numbers.",
        f"`export {name}=0,1,2,3`, or unset it for all",
        _LAYOUT,
    )


def _worker(name: str, value: str) -> ValueFault | None:
    if re.fullmatch(r"[0-9]{1,6}", value):
        return None
    return ValueFault(
        f"{name}={value} is no number: JAX fails to read it.",
        f"`export {name}=0` on the first host, 1 on the next, and so on",
        "https://github.com/jax-ml/jax/blob/main/jax/_src/clusters/cloud_tpu_cluster.py",
    )


_RULES: Final[dict[str, Callable[[str, str], ValueFault | None]]] = {
    SIZE: _size,
    THRESHOLD: _threshold,
    PARTITIONS: _partitions,
    "TPU_MIN_LOG_LEVEL": _integer(0, 4, "0"),
    "TPU_STDERR_LOG_LEVEL": _integer(0, 4, "its own"),
    "TPU_MAX_LOG_SIZE_MB": _integer(1, 999_999_999, "1024"),
    "TPU_VLOG_LEVEL": _integer(-10, 100, "0"),
    "TPU_RUNTIME_METRICS_PORTS": _ports,
    "TPU_VISIBLE_CHIPS": _chips,
    "TPU_VISIBLE_DEVICES": _chips,
    "TPU_CHIPS_PER_PROCESS_BOUNDS": _bounds,
    "TPU_CHIPS_PER_HOST_BOUNDS": _bounds,
    "TPU_PROCESS_BOUNDS": _bounds,
    "TPU_HOST_BOUNDS": _bounds,
    "TPU_WORKER_ID": _worker,
}
