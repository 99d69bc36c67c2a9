"""The TPU machine: its devices and their holders, the lock file, memory."""

from __future__ import annotations

import re
import stat
from typing import TYPE_CHECKING, Final

from tpuwatch.core import format_size
from tpuwatch.doctor.check import Area, Check, Result, ok, skipped, unknown, warn, wrong
from tpuwatch.doctor.environment import cut, once
from tpuwatch.doctor.jobs import find_jobs, job_users, variable_sets
from tpuwatch.doctor.metadata import value
from tpuwatch.host import GOOGLE, ProcFs, read_memory, tpu_devices
from tpuwatch.libtpu import half_of, premapped_bytes
from tpuwatch.model import DEFAULT_PREMAPPED_BYTES, SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import stat_result

    from tpuwatch.doctor.environment import Environment
    from tpuwatch.doctor.users import User
    from tpuwatch.host import HolderScan

_IN_USE = "https://github.com/jax-ml/jax/issues/22070"
_STALE_LOCK = "https://github.com/vllm-project/tpu-inference/issues/2257"
_CONTAINER = "https://github.com/jax-ml/jax/issues/30834"
_JAX_INIT = "https://github.com/jax-ml/jax/blob/main/jax/_src/cloud_tpu_init.py"
_GUIDE = "https://docs.cloud.google.com/tpu/docs/performance-guide"
_CREATE = "https://docs.cloud.google.com/tpu/docs/troubleshooting/trouble-jax"

_CHIPS: Final = {  # PCI device ids, from JAX's hardware_utils.py
    "0x0027": "v2 or v3",
    "0x005e": "v4",
    "0x0062": "v5p",
    "0x0063": "v5e",
    "0x006f": "v6e",
    "0x0076": "7x",
}
_PREMAPPING: Final = ("v5p", "v5e", "v6e", "7x")  # have a premapped buffer by default, and benefit from huge pages
_LOCK: Final = "/tmp/libtpu_lockfile"  # noqa: S108 (libtpu's own)


def chips(environment: Environment) -> list[str]:
    """The generation of each TPU chip on the PCI bus."""
    found = []
    folder = environment.path("/sys/bus/pci/devices")
    for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
        texts = (environment.text_or_none(f"/sys/bus/pci/devices/{entry.name}/{name}") for name in ("vendor", "device"))
        vendor, device = ((text or "").strip() for text in texts)
        if vendor == GOOGLE and device in _CHIPS:
            found.append(_CHIPS[device])
    return found


def premaps(environment: Environment) -> bool:
    """Whether the chips here have a premapped buffer by default."""
    return any(kind in _PREMAPPING for kind in chips(environment))


def devices(environment: Environment) -> Iterator[Result]:
    """Device nodes: whether they exist and the job's user can open them."""
    kinds, paths = chips(environment), tpu_devices(environment.root)
    if not kinds and not paths:
        accelerator = value(environment, "instance/attributes/accelerator-type") or ""
        if accelerator.startswith("v"):
            text = f"This is a TPU VM ({cut(accelerator, 30)}), but it has no TPU on its PCI bus or among its devices."
            yield wrong(
                text,
                "In a container, give it the devices: `docker run --privileged`, or in Kubernetes request "
                "google.com/tpu. On the VM, see whether the driver is up: `sudo systemctl --failed`, and whether the "
                "chips are on the bus: `lspci -d 1ae0:`. Then restart the VM: `sudo reboot`. If none of this helps, "
                "delete the node and create it again.",
                _CREATE,
            )
        else:
            yield skipped("There is no TPU in this machine, and it does not say that it is a TPU VM.")
        return
    if not paths:
        yield wrong(
            f"{len(kinds)} TPU chips ({kinds[0]}) are on the PCI bus; none of /dev/accel* and /dev/vfio/* is theirs.",
            "In a container: `docker run --privileged`, or --device for each node. On the VM: `sudo reboot`",
            _CONTAINER,
        )
        return
    vfio = any(path.startswith("/dev/vfio/") for path in paths)
    denied = False
    for user in job_users(environment):
        for path in [*paths, *(["/dev/vfio/vfio"] if vfio else [])]:
            if not user.may(environment.path(path).stat(), "rw"):
                denied = True
                name = environment.user_name(user.uid)
                yield wrong(f"{name} cannot open {path}.", f"`sudo chmod a+rw {path}`", _CONTAINER)
                break
    if not denied:
        yield ok(f"{len(paths)} TPU devices ({', '.join(sorted(set(kinds))) or paths[0]}), open to the job's user.")


@once
def holder_scan(environment: Environment) -> HolderScan:
    """The processes that hold the devices and the lock file."""
    from tpuwatch.host import Holders

    holders = Holders(ProcFs(environment.path("/proc")), environment.root)
    return holders.look(None, environment.clock.monotonic())


def holders(environment: Environment) -> Iterator[Result]:
    """The processes that hold the TPU, and those of them that are stopped or dead."""
    found = holder_scan(environment)
    for holder in found.holders:
        state = re.search(r"^State:\s+(\w)", environment.text_or_none(f"/proc/{holder.pid}/status") or "", re.MULTILINE)
        name = f"Process {holder.pid} of {cut(holder.user)} ({cut(holder.command, 60)})"
        if state and state[1] in "TtZ":
            how = "is stopped" if state[1] in "Tt" else "has ended but its parent has not collected it,"
            yield wrong(f"{name} {how} and still holds the TPU.", f"`sudo kill -9 {holder.pid}`", _IN_USE)
        else:
            what = ", ".join(holder.devices[:4]) or "the lock file"
            yield ok(f"{name} holds {what}.")
    for sentence in found.unseen:
        yield unknown(sentence, environment.sudo)
    if not found.holders and not found.unseen:
        yield ok("No process holds the TPU.")


def lock_file(environment: Environment) -> Iterator[Result]:
    """A lock file that was left behind and that the user of the next job cannot open."""
    try:
        entry = environment.path(_LOCK).lstat()
    except FileNotFoundError:
        yield ok(f"There is no {_LOCK}.")
        return
    owner = environment.user_name(entry.st_uid)
    if not stat.S_ISREG(entry.st_mode):
        yield wrong(f"{_LOCK} is not a regular file, so libtpu cannot lock it.", f"`sudo rm -r {_LOCK}`", _STALE_LOCK)
        return
    locker = next((holder for holder in holder_scan(environment).holders if holder.locks), None)
    if locker is not None:
        yield ok(f"{_LOCK} is held by process {locker.pid} of {cut(locker.user)}.")
        return
    denied = [
        environment.user_name(user.uid) for user in job_users(environment) if not _may_lock(environment, user, entry)
    ]
    if denied:
        yield wrong(
            f"{_LOCK} was left by {owner}, and {', '.join(denied)} cannot open it: libtpu then starts without any "
            "message in its log.",
            f"If `sudo fuser -v {_LOCK}` lists no process: `sudo rm {_LOCK}`",
            _STALE_LOCK,
        )
    elif holder_scan(environment).unseen:
        yield unknown(f"{_LOCK} exists; its holder is unknown.", environment.sudo)
    else:
        yield ok(f"{_LOCK} of {owner} exists, and no process holds it.")


def _may_lock(environment: Environment, user: User, entry: stat_result) -> bool:
    """Whether a user can open the lock file as libtpu does: for writing, with O_CREAT.

    In a sticky directory the kernel refuses O_CREAT for another user's file, even to root (fs.protected_regular),
    unless the file belongs to the owner of the directory.
    """
    folder = environment.path(_LOCK).parent.stat()
    protected = (environment.text_or_none("/proc/sys/fs/protected_regular") or "0").strip() not in ("0", "")
    shared = folder.st_mode & stat.S_ISVTX and folder.st_mode & stat.S_IWOTH
    foreign = entry.st_uid not in (user.uid, folder.st_uid)
    return user.may(entry, "rw") and not (protected and shared and foreign)


def memory(environment: Environment) -> Iterator[Result]:
    """Whether the host has enough memory for the premapped buffer, which pins it."""
    machine = read_memory(ProcFs(environment.path("/proc")), environment.root, (), 0)
    total, available = machine.total, machine.available
    if total is None or available is None:
        yield unknown("/proc/meminfo has no MemTotal and MemAvailable.")
        return
    bad = False
    for setting in variable_sets(environment):
        size = premapped_bytes(setting.variables)
        if size is None and (setting.variables or environment.pids) and premaps(environment):
            size = DEFAULT_PREMAPPED_BYTES
        if not size:
            continue
        starting = None in setting.holders  # a running job has its buffer already
        text = f"The premapped buffer in {setting.where} is {format_size(size)};"
        fix = f"`export {SIZE}={half_of(total)}`"
        if size >= total:
            bad = True
            yield wrong(f"{text} this host has {format_size(total)}.", fix, _GUIDE)
        elif starting and size > available:
            bad = True
            yield wrong(
                f"{text} {format_size(available)} are available.", f"End processes that use memory, or {fix}", _GUIDE
            )
        elif size > total // 2:
            bad = True
            yield warn(f"{text} it pins more than half of the host's {format_size(total)}.", fix, _GUIDE)
    if available < total // 20:
        bad = True
        yield warn(
            f"{format_size(available)} of {format_size(total)} are available; the kernel may kill the largest process.",
            "Use less memory on the host: smaller shuffle and prefetch buffers, fewer data workers.",
            "https://cloud.google.com/tpu/docs/troubleshooting/trouble-tf",
        )
    if not bad:
        yield ok(f"{format_size(available)} of {format_size(total)} are available.")


def memlock(environment: Environment) -> Iterator[Result]:
    """The limit of locked memory, which applies to unprivileged users where VFIO drives the TPU."""
    if not any(path.startswith("/dev/vfio/") for path in tpu_devices(environment.root)):
        yield skipped("VFIO drives no TPU here.")
        return
    jobs = find_jobs(environment).seen
    shells = [] if environment.pids else [("this shell", environment.me, "self", environment.environ)]
    for where, user, pid, environ in [*shells, *((job.name, job.user, str(job.pid), job.environ) for job in jobs)]:
        limit = re.search(
            r"^Max locked memory\s+(\d+|unlimited)", environment.text(f"/proc/{pid}/limits"), re.MULTILINE
        )
        needed = premapped_bytes(environ)
        needed = DEFAULT_PREMAPPED_BYTES if needed is None and premaps(environment) else needed or 0
        if limit and limit[1] != "unlimited" and int(limit[1]) < needed and not user.may_lock_memory:
            yield warn(
                f"In {where} {format_size(int(limit[1]))} of memory may be locked; the premapped buffer is "
                f"{format_size(needed)}.",
                "As root, before the job: `ulimit -l unlimited`; in a unit LimitMEMLOCK=infinity; in a container "
                "`docker run --ulimit memlock=-1`",
                _CONTAINER,
            )


def hugepages(environment: Environment) -> Iterator[Result]:
    """Transparent huge pages, without which newer TPUs start and stop slowly."""
    if not premaps(environment):
        yield skipped("Huge pages matter from v5 on; this machine has no such TPU.")
        return
    path = "/sys/kernel/mm/transparent_hugepage/enabled"
    if "[always]" in environment.text(path):
        yield ok("Transparent huge pages are on.")
        return
    yield warn(
        "Transparent huge pages are not on: the TPU's runtime starts and ends slowly.",
        f"`echo always | sudo tee {path}`",
        _JAX_INIT,
    )


CHECKS = (
    Check("devices", "TPU devices", Area.HOST, devices, seconds=8.0, essential=True),
    Check("holders", "holders of the TPU", Area.HOST, holders),
    Check("lock_file", "libtpu's lock file", Area.HOST, lock_file),
    Check("memory", "memory", Area.HOST, memory),
    Check("memlock", "limit of locked memory", Area.HOST, memlock, fine="Enough memory may be locked."),
    Check("hugepages", "transparent huge pages", Area.HOST, hugepages),
)
