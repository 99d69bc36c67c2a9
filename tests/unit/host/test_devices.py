"""Device files of other vendors are no TPUs, for those who list devices and for those who look for holders."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.standins.machine import Machine
from tpuwatch.host.devices import is_other_vendors, tpu_devices
from tpuwatch.host.holders import Holders
from tpuwatch.host.procfs import ProcFs

if TYPE_CHECKING:
    from pathlib import Path

GOOGLE, MELLANOX, AMD = "0x1ae0", "0x15b3", "0x1022"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def group(machine: Machine, number: int, *vendors: str) -> None:
    """A VFIO group of PCI devices of these vendors."""
    machine.write(f"dev/vfio/{number}", "")
    for slot, vendor in enumerate(vendors):
        place = f"sys/devices/pci0000:00/0000:0{number}:0{slot}.0"
        machine.write(f"{place}/vendor", f"{vendor}\n")
        link = machine.root / f"sys/kernel/iommu_groups/{number}/devices/0000:0{number}:0{slot}.0"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(machine.root / place)


def accel(machine: Machine, name: str, vendor: str, called: str = "") -> None:
    """A device of the kernel's accel subsystem; `called`: the device file that sysfs names, if another one."""
    machine.write(f"dev/{name}", "")
    entry = f"sys/class/accel/{name.rpartition('/')[2]}"
    machine.write(f"{entry}/device/vendor", f"{vendor}\n")
    machine.write(f"{entry}/uevent", f"MAJOR=261\nDEVNAME={called or name}\n")


def held(machine: Machine, processes: ProcFs | None = None) -> dict[int, tuple[tuple[str, ...], bool]]:
    scan = Holders(processes or ProcFs(machine.root / "proc"), machine.root).look(0.0, 0.0)
    return {holder.pid: (holder.devices, holder.trusted) for holder in scan.holders}


def test_a_vfio_group_is_a_tpus_by_the_vendor_of_its_devices(machine: Machine) -> None:
    group(machine, 0, GOOGLE)
    group(machine, 1, MELLANOX)
    group(machine, 2, MELLANOX, GOOGLE)  # with a bridge
    group(machine, 3)  # nothing is known of it
    machine.write("dev/vfio/vfio", "")
    assert tpu_devices(machine.root) == ["/dev/vfio/0", "/dev/vfio/2", "/dev/vfio/3"]


def test_an_accel_device_is_a_tpu_by_its_vendor(machine: Machine) -> None:
    accel(machine, "accel/accel0", AMD)
    accel(machine, "accel/accel1", GOOGLE)
    machine.write("dev/accel0", "")  # of a driver that sysfs shows elsewhere: the class has accel/accel0
    assert tpu_devices(machine.root) == ["/dev/accel0", "/dev/accel/accel1"]


def test_a_vfio_device_of_its_own_has_a_vendor(machine: Machine) -> None:
    machine.write("sys/class/vfio-dev/vfio0/device/vendor", f"{MELLANOX}\n")
    assert is_other_vendors(machine.root, "/dev/vfio/devices/vfio0")
    assert not is_other_vendors(machine.root, "/dev/vfio/devices/vfio1")


def test_who_holds_a_device_of_another_vendor_holds_no_tpu(machine: Machine) -> None:
    group(machine, 1, MELLANOX)
    accel(machine, "accel/accel0", AMD)
    machine.process(40, files=("/dev/vfio/vfio", "/dev/vfio/1"), uid=1001)
    machine.process(41, files=("/dev/accel/accel0",), uid=1001)
    machine.process(42, files=("/dev/vfio/vfio", "/dev/vfio/1", "/dev/vfio/7"), uid=1001)
    machine.process(43, files=("/dev/vfio/vfio",), uid=1001)
    assert held(machine) == {42: (("/dev/vfio/7", "/dev/vfio/vfio"), False), 43: (("/dev/vfio/vfio",), False)}


def test_a_device_of_another_vendor_makes_nobody_trusted(machine: Machine) -> None:
    group(machine, 1, MELLANOX)
    group(machine, 0, GOOGLE)
    machine.process(40, files=("/dev/vfio/1",), uid=1001)
    machine.process(41, files=("/dev/vfio/0",), uid=1001)
    assert held(machine, machine.devices(vfio_0="vfio/0", vfio_1="vfio/1")) == {41: (("/dev/vfio/0",), True)}


def test_a_tpu_under_the_name_of_another_device_is_held_all_the_same(machine: Machine) -> None:
    group(machine, 1, MELLANOX)
    group(machine, 0, GOOGLE)
    machine.process(40, files=("/dev/vfio/1",), uid=1001)
    assert held(machine, machine.devices(vfio_1="vfio/0")) == {40: (("/dev/vfio/1",), True)}
