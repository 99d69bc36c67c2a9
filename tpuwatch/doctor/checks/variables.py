"""The environment of TPU processes and of the calling shell: names, values, contradictions."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tpuwatch.core import format_size, installed, printable
from tpuwatch.doctor.check import Area, Check, CheckStatus, Result, ok, skipped, unknown, warn, wrong
from tpuwatch.doctor.environment import cut, export
from tpuwatch.doctor.jobs import find_jobs, variable_sets
from tpuwatch.libtpu import MEASURED, items, judge_value, leading_integer, meant, premapped_bytes, product
from tpuwatch.model import SIZE, THRESHOLD

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tpuwatch.doctor.environment import Environment

_JAX_CLUSTER = "https://github.com/jax-ml/jax/blob/main/jax/_src/clusters/cloud_tpu_cluster.py"
_LAYOUT = "https://github.com/pytorch/xla/blob/master/torch_xla/_internal/tpu.py"
_EITHER = (  # old and new name of the same variable
    ("TPU_VISIBLE_DEVICES", "TPU_VISIBLE_CHIPS"),
    ("TPU_HOST_BOUNDS", "TPU_PROCESS_BOUNDS"),
    ("TPU_CHIPS_PER_HOST_BOUNDS", "TPU_CHIPS_PER_PROCESS_BOUNDS"),
)


def names(environment: Environment) -> Iterator[Result]:
    """Misspelt names, which nothing reads."""
    seen = False
    for setting in variable_sets(environment):
        seen = seen or bool(setting.variables)
        for name, value in sorted(setting.variables.items()):
            right = meant(name)
            if right is None:
                continue
            known, certain = right
            text = f"{cut(name)} in {setting.where}: nothing reads that name; "
            text += f"it is {known}." if certain else f"{known} is probably meant."
            fault = judge_value(known, cut(value))
            fix = f"`unset {printable(name)}`; {fault.fix if fault else export(known, value)}"
            yield wrong(text, fix, MEASURED) if certain else warn(text, fix, MEASURED)
    if not seen:
        yield skipped("No TPU variables are set in this shell or in any process that can be seen.")


def values(environment: Environment) -> Iterator[Result]:
    """Values that libtpu silently takes for something else."""
    for setting in variable_sets(environment):
        for name, value in sorted(setting.variables.items()):
            right = meant(name)
            fault = judge_value(right[0] if right and right[1] else name, cut(value))
            if fault is not None:
                status = CheckStatus.WRONG if fault.certain else CheckStatus.WARN
                yield Result(status, f"In {setting.where}: {fault.text}", fault.fix, fault.source)


def conflicts(environment: Environment) -> Iterator[Result]:
    """Variables that contradict each other or tpuwatch's configuration."""
    for setting in variable_sets(environment):
        for look in (_either, _threshold, _chips, _workers, _metadata, _arguments):
            for result in look(setting.variables):
                yield Result(result.status, f"In {setting.where}: {result.text}", result.fix, result.source)
        yield from _ports(environment, setting.variables, setting.where)


def _either(variables: Mapping[str, str]) -> Iterator[Result]:
    for old, new in _EITHER:
        if old in variables and new in variables and variables[old] != variables[new]:
            yield warn(
                f"{old}={cut(variables[old])} and {new}={cut(variables[new])} are two names of the same variable, "
                "but differ.",
                f"`unset {old}`",
                _LAYOUT,
            )


def _threshold(variables: Mapping[str, str]) -> Iterator[Result]:
    size, threshold = premapped_bytes(variables), leading_integer(variables.get(THRESHOLD, ""))
    if threshold is None or size is None:
        return
    if size == 0:
        yield warn(f"{THRESHOLD} has no effect while {SIZE} turns the buffer off.", f"`unset {THRESHOLD}`", MEASURED)
    elif threshold > size:
        yield warn(
            f"{THRESHOLD} ({format_size(threshold)}) is above the buffer's size ({format_size(size)}), "
            "into which a transfer of that size does not fit.",
            f"`export {THRESHOLD}={size}`",
            MEASURED,
        )


def _chips(variables: Mapping[str, str]) -> Iterator[Result]:
    chips = items(variables.get("TPU_VISIBLE_CHIPS", variables.get("TPU_VISIBLE_DEVICES", "")))
    bounds = product(variables.get("TPU_CHIPS_PER_PROCESS_BOUNDS", ""))
    if chips and bounds and bounds != len(chips):
        yield wrong(
            f"{len(chips)} visible chips ({cut(','.join(chips), 40)}) do not fill TPU_CHIPS_PER_PROCESS_BOUNDS="
            f"{variables['TPU_CHIPS_PER_PROCESS_BOUNDS']}, which is {bounds}.",
            "Give as many chips in TPU_VISIBLE_CHIPS as the bounds multiply to.",
            _LAYOUT,
        )
    addresses = items(variables.get("TPU_PROCESS_ADDRESSES", ""))
    processes = product(variables.get("TPU_PROCESS_BOUNDS", ""))
    if addresses and processes and processes != len(addresses):
        yield wrong(
            f"TPU_PROCESS_ADDRESSES names {len(addresses)} processes, TPU_PROCESS_BOUNDS="
            f"{variables['TPU_PROCESS_BOUNDS']} makes {processes}.",
            "Give one host:port for each process.",
            _LAYOUT,
        )


def _workers(variables: Mapping[str, str]) -> Iterator[Result]:
    hosts, worker = items(variables.get("TPU_WORKER_HOSTNAMES", "")), variables.get("TPU_WORKER_ID", "")
    if hosts and worker.isdecimal() and int(worker) >= len(hosts):
        yield wrong(
            f"TPU_WORKER_ID={cut(worker)}, but TPU_WORKER_HOSTNAMES names {len(hosts)} hosts, which count from 0.",
            "Give each host its index in the list, from 0; use the same list on all hosts.",
            _JAX_CLUSTER,
        )


def _metadata(variables: Mapping[str, str]) -> Iterator[Result]:
    wanted = [name for name in ("TPU_ACCELERATOR_TYPE", "TPU_WORKER_ID") if name not in variables]
    wanted += [] if {"TPU_PROCESS_BOUNDS", "TPU_HOST_BOUNDS"} & set(variables) else ["TPU_PROCESS_BOUNDS"]
    if variables.get("TPU_SKIP_MDS_QUERY", "") not in ("", "0", "false") and wanted:
        yield warn(
            "TPU_SKIP_MDS_QUERY keeps the program from the metadata server, and variables that it would "
            f"read there are not set: {', '.join(wanted)}.",
            "On a TPU VM `unset TPU_SKIP_MDS_QUERY`; elsewhere export these as well",
            _LAYOUT,
        )


def _arguments(variables: Mapping[str, str]) -> Iterator[Result]:
    words = variables.get("LIBTPU_INIT_ARGS", "").split()
    loose = [word for word in words if not word.startswith("-")]
    if loose:
        yield warn(
            f"LIBTPU_INIT_ARGS holds {cut(' '.join(loose))}, which is no flag and is ignored.",
            "Write each flag as --name=value, without spaces around the =.",
            MEASURED,
        )
    flags = dict.fromkeys(words)  # a repeated flag with the same value is harmless
    twice = [flag for flag, times in Counter(word.partition("=")[0] for word in flags).items() if times > 1]
    for flag in twice:
        yield warn(f"LIBTPU_INIT_ARGS gives {cut(flag)} twice, with different values.", "Give it once.", MEASURED)


def _ports(environment: Environment, variables: Mapping[str, str], where: str) -> Iterator[Result]:
    ours = {str(port) for port in environment.config.runtime.ports}
    theirs = set(items(variables.get("TPU_RUNTIME_METRICS_PORTS", "")))
    if ours and theirs and not ours & theirs:
        yield warn(
            f"Runtime metrics are served on {cut(', '.join(sorted(theirs)))} in {where}; tpuwatch queries "
            f"{', '.join(sorted(ours))}.",
            f"ports = [{cut(', '.join(sorted(theirs)))}] under [runtime] of tpuwatch's configuration",
            installed("docs/operations.md"),
        )


def processes(environment: Environment) -> Iterator[Result]:
    """Whether all processes could be read."""
    jobs = find_jobs(environment)
    if jobs.unreadable:
        text = f"Processes that could not be read: {jobs.unreadable}. A TPU job may be among them."
        yield unknown(text, environment.sudo)
    elif jobs.seen:
        yield ok(f"{len(jobs.seen)} TPU processes were read.")


_CONFLICTS = "variables that contradict each other"

CHECKS = (
    Check("variable_names", "names of TPU variables", Area.ENVIRONMENT, names),
    Check("variable_values", "values of TPU variables", Area.ENVIRONMENT, values, fine="No known wrong value."),
    Check("variable_conflicts", _CONFLICTS, Area.ENVIRONMENT, conflicts, fine="None contradicts another."),
    Check("processes", "TPU processes", Area.ENVIRONMENT, processes, fine="No process with TPU variables is running."),
)
