"""The machine: processes, holders of the TPU, memory, processors, kills for want of memory.

In: /proc, /sys and /dev of the machine, or of a simulated one.
Out: plain data, and what could not be seen.
Never: changes anything on the machine.
"""

from tpuwatch.core.lazy import LazyFace

with LazyFace(__name__):
    from tpuwatch.host import oom
    from tpuwatch.host.cpu import Mean
    from tpuwatch.host.devices import GOOGLE, tpu_devices
    from tpuwatch.host.holders import LOCK_FILE, Holders, HolderScan, parse_locks
    from tpuwatch.host.listeners import Listeners
    from tpuwatch.host.memory import parse_groups, read_memory
    from tpuwatch.host.pressure import waited_seconds
    from tpuwatch.host.procfs import (
        Process,
        Processes,
        ProcFs,
        parse_environ,
        parse_numbers,
        parse_stat,
        read_bounded,
        shown_command,
    )
    from tpuwatch.host.users import USER_FILES, parse_users
