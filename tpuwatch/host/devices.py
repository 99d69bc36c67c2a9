"""Device files that may be a TPU's, and those of them that are another vendor's.

VFIO passes any PCI device to a program, and the kernel's accel subsystem has devices of several vendors. Where sysfs
names the vendor, only Google's devices are a TPU's; where it does not, as in a container without /sys, any may be one.
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Final

from tpuwatch.host.procfs import read_bounded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GOOGLE: Final = "0x1ae0"  # the PCI vendor
_FOLDERS: Final = ("dev", "dev/accel", "dev/vfio")
_ACCEL: Final = re.compile(r"/dev/(?:accel/(?:accel)?|accel)[0-9]{1,4}")
_GROUP: Final = re.compile(r"/dev/vfio/([0-9]{1,6})")
_VFIO: Final = re.compile(r"/dev/vfio/devices/(vfio[0-9]{1,6})")
_MAX_BYTES: Final = 4096  # of a file of sysfs
_MAX_DEVICES: Final = 64  # of an IOMMU group


def tpu_devices(root: Path) -> list[str]:
    """The device files of TPUs on the machine below `root`. Raises OSError."""
    folders = [root / folder for folder in _FOLDERS]
    paths = [path for folder in folders if folder.is_dir() for path in sorted(folder.iterdir()) if not path.is_dir()]
    names = [f"/{path.relative_to(root)}" for path in paths]
    known = [name for name in names if _ACCEL.fullmatch(name) or _GROUP.fullmatch(name)]
    return [name for name in known if not is_other_vendors(root, name)]


def is_other_vendors(root: Path, name: str) -> bool:
    """Whether sysfs names the vendor of the device file `name`, as the kernel calls it, and that is not Google."""
    vendors = set(_vendors(root, name))
    return bool(vendors) and GOOGLE not in vendors


def device_name(uevent: bytes) -> str:
    """The device file that a uevent file of sysfs names; empty if it names none."""
    for line in uevent.splitlines():
        if line.startswith(b"DEVNAME="):
            return f"/dev/{line.removeprefix(b'DEVNAME=').decode('utf-8', 'replace')}"
    return ""


def _vendors(root: Path, name: str) -> Iterator[str]:
    """The PCI vendors of the devices behind a device file, as far as they can be read."""
    for place in _places(root, name):
        vendor = read_bounded(place / "vendor", _MAX_BYTES).strip().lower()
        if vendor:
            yield vendor.decode("ascii", "replace")


def _places(root: Path, name: str) -> Iterator[Path]:
    if (match := _GROUP.fullmatch(name)) is not None:
        with contextlib.suppress(OSError):
            yield from sorted((root / f"sys/kernel/iommu_groups/{match[1]}/devices").iterdir())[:_MAX_DEVICES]
    elif (match := _VFIO.fullmatch(name)) is not None:
        yield root / f"sys/class/vfio-dev/{match[1]}/device"
    elif _ACCEL.fullmatch(name) is not None:
        entry = root / "sys/class/accel" / name.rpartition("/")[2]
        if device_name(read_bounded(entry / "uevent", _MAX_BYTES)) in ("", name):  # else of another driver's device
            yield entry / "device"
