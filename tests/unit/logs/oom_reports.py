"""The kernel's reports of out-of-memory kills, as Linux 5.15 to 6.8 writes them, with the prefixes of several logs."""

from __future__ import annotations

POD = "1234abcd-11aa-22bb-33cc-445566778899"
CONTAINER = "6f0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8"
POD_CGROUP = f"/kubepods/burstable/pod{POD}"
GIB = 1 << 30


def cgroup_report(
    pid: int = 4711,
    comm: str = "python3",
    *,
    limit_kib: int = 8 << 20,
    limit_cgroup: str = POD_CGROUP,
    cgroup: str = f"{POD_CGROUP}/{CONTAINER}",
    resident_kib: int = 7 << 20,
) -> list[str]:
    """A kill for the limit of a cgroup."""
    return [
        f"{comm} invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=969",
        f"CPU: 3 PID: {pid} Comm: {comm} Not tainted 5.15.0-1036-gcp #44~20.04.1-Ubuntu",
        "Call Trace:",
        " dump_stack_lvl+0x4a/0x63",
        f"memory: usage {limit_kib}kB, limit {limit_kib}kB, failcnt 12",
        "swap: usage 0kB, limit 9007199254740988kB, failcnt 0",
        f"Memory cgroup stats for {limit_cgroup}:",
        "anon 8388608000",
        "Tasks state (memory values in pages):",
        "[  pid  ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name",
        f"[{pid:7}]     0 {pid:5} 13328061  2097152   1024000        0           969 {comm}",
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=a,mems_allowed=0,"
        f"oom_memcg={limit_cgroup},task_memcg={cgroup},task={comm},pid={pid},uid=0",
        f"Memory cgroup out of memory: Killed process {pid} ({comm}) total-vm:53312244kB, anon-rss:{resident_kib}kB, "
        "file-rss:102400kB, shmem-rss:0kB, UID:0 pgtables:17000kB oom_score_adj:969",
        f"oom_reaper: reaped process {pid} ({comm}), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB",
    ]


def machine_report(
    pid: int = 4711, comm: str = "python3", *, cgroup: str = "/user.slice/user-1000.slice/session-3.scope"
) -> list[str]:
    """A kill because the machine's memory ran out."""
    return [
        "systemd-journal invoked oom-killer: gfp_mask=0x1100cca(GFP_HIGHUSER_MOVABLE), order=0, oom_score_adj=-250",
        "Mem-Info:",
        "active_anon:1234 inactive_anon:97345678 isolated_anon:0",
        "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0-1,global_oom,"
        f"task_memcg={cgroup},task={comm},pid={pid},uid=1000",
        f"Out of memory: Killed process {pid} ({comm}) total-vm:412000000kB, anon-rss:401000000kB, file-rss:0kB, "
        "shmem-rss:0kB, UID:1000 pgtables:790000kB oom_score_adj:0",
        f"oom_reaper: reaped process {pid} ({comm}), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB",
    ]


PREFIXES = {
    "plain": "",
    "dmesg": "[12345.678901] ",
    "dmesg -T": "[Fri Nov 27 14:02:10 2026] ",
    "dmesg --time-format iso": "2026-11-27T14:02:10,678901+00:00 ",
    "dmesg -x": "kern  :warn  : [12345.678901] ",
    "journalctl": "Nov 27 14:02:10 t1v-n-1 kernel: ",
    "journalctl -o short-iso": "2026-11-27T14:02:10+0000 t1v-n-1 kernel: ",
    "journalctl -o short-precise": "Nov 27 14:02:10.678901 t1v-n-1 kernel: ",
    "kern.log": "Nov 27 14:02:10 t1v-n-1 kernel: [12345.678901] ",
    "syslog of today": "2026-11-27T14:02:10.678901+00:00 t1v-n-1 kernel: [12345.678901] ",
}


def log(lines: list[str], prefix: str = PREFIXES["kern.log"]) -> str:
    """The lines as a log has them."""
    return "".join(f"{prefix}{line}\n" for line in lines)
