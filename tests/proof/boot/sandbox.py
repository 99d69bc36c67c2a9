"""What must hold in the unit's sandbox: every signal is heard, nothing else can be done, and the limits suffice."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.proof.boot import manual
from tests.proof.boot.failure import expect, until
from tests.proof.boot.service import GUEST, PYTHON, SIMULATOR, STATE, UNIT

if TYPE_CHECKING:
    from tests.proof.boot.service import Service
    from tpuwatch.model.events import Event

HEARD = ("cloud", "runtime", "host", "logs", "metadata")
CALLERS = 40  # more than are served at a time
SERVED = 16  # of them, at a time
ENGINE_THREADS = 16  # gRPC takes one per core, and no more than these
SPARE_TASKS = 32  # for the threads that gRPC adds for a while when its own are blocked; without one it aborts
MIB, KIB_PER_MIB = 1 << 20, 1024
HOLDERS_DROP_IN = f"/etc/systemd/system/{UNIT}.service.d"
SECURE = "/run/secure"


def signals(service: Service) -> str:
    """All that are on by default answer, and the verdict is sure. The state is for its user alone."""
    service.fresh()
    until(lambda: all(_hears(service, name) for name in HEARD), 20, f"{', '.join(HEARD)} answer")
    until(lambda: service.verdict() == "healthy", 20, "the verdict is healthy")
    status = service.status()
    expect(status["node"]["confidence"] == "high", f"the verdict is {status['node']['confidence']}")
    expect(status["store"]["durable"], f"the store: {status['store']['detail']}")
    lines = service.machine.shell(f"cd /{STATE}; stat -c '%n %U %a' . *").split("\n")
    modes = {name: (user, mode) for name, user, mode in (line.split() for line in lines if line)}
    expect(modes.pop(".") == ("tpuwatch", "711"), "the state directory can be listed by others, or not be passed")
    expect(modes.pop("tune", ("tpuwatch", "755")) == ("tpuwatch", "755"), "the plans are not for all to read")
    expect(modes.pop("http.address", ("", "")) == ("tpuwatch", "644"), "ordinary users cannot see where to ask")
    beats = modes.pop("heartbeats.socket", ("", ""))
    expect(beats == ("tpuwatch", "666"), "other users' jobs cannot send heartbeats")
    open_files = [name for name, facts in modes.items() if facts != ("tpuwatch", "600")]
    expect(modes and not open_files, f"open to others: {', '.join(open_files)}")
    answer = f"{', '.join(HEARD)} answer: {status['node']['summary']}"
    return f"{answer} State 0711, files 0600 but for http.address and heartbeats.socket"


def logs(service: Service) -> str:
    """What root alone may read is read: a launch of root whose log is 0600 below a directory that is 0700."""
    service.fresh()
    before = len(_faults(service))
    service.launch("busy")
    until(lambda: service.status()["launches"], 20, "the launch is seen")
    until(lambda: _faults(service)[before:], 20, "its fault is seen")
    status = service.status()
    expect(not status["problems"], f"not read: {status['problems']}")
    return f"{len(_faults(service)) - before} events of {len(status['launches'])} launch, 0600 of root"


def holders(service: Service) -> str:
    """The lock's holder is named; who has a device open too, once the drop-in that README names is there."""
    service.fresh()
    service.machine.shell("[ -e /dev/accel0 ] || mknod /dev/accel0 c 1 3; chmod 600 /dev/accel0")
    service.background("holder", PYTHON, f"{GUEST}/holder.py")
    try:
        (locker,) = until(lambda: _holders(service), 30, "the lock's holder is seen")
        expect(locker["user"] == "root" and locker["locks"] and not locker["devices"], f"the holder is {locker}")
        unseen = " ".join(service.status()["host"]["unseen"])
        expect("CAP_SYS_PTRACE" in unseen, "what cannot be seen is not said")
        service.machine.shell(manual.sentence("README.md", "tpuwatch-holders.conf") + "\nsystemctl daemon-reload")
        service.start()
        (holder,) = until(lambda: _holders(service), 30, "the holder is seen with the drop-in")
        expect(holder["devices"] == ["/dev/accel0"] and holder["locks"], f"with the drop-in the holder is {holder}")
        unseen = " ".join(service.status()["host"]["unseen"])
        expect("CAP_SYS_PTRACE" not in unseen, f"even so: {unseen}")
    finally:
        service.machine.run("systemctl", "stop", "holder", check=False)
        service.machine.shell(f"rm -rf {HOLDERS_DROP_IN} /dev/accel0 && systemctl daemon-reload")
    return "root's lock without, its device with the drop-in; what is unseen is said"


def tls(service: Service) -> str:
    """Credentials of the metadata server and a connection with TLS, as with Google's own servers."""
    service.fresh()
    service.machine.run("rm", "-rf", SECURE)
    service.background("secure", PYTHON, f"{GUEST}/secure_cloud.py", SECURE)
    try:
        note = until(lambda: service.machine.run("cat", f"{SECURE}/note.json", check=False), 20, "the cloud runs")
        note = json.loads(note)
        service.configure(cloud={"endpoint": note["endpoint"], "insecure": False})
        host = note["metadata"]
        pairs = (
            f"GCE_METADATA_HOST={host} GCE_METADATA_IP={host} no_proxy=127.0.0.1,localhost "
            f"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH={note['authority']}"
        )
        service.drop_in(f"{service.environment()}Environment={pairs}\n")
        service.start()
        until(lambda: _hears(service, "cloud"), 20, "the cloud answers")
        state = service.status()["node"]["cloud"]["state"]
    finally:
        service.machine.run("systemctl", "stop", "secure", check=False)
    return f"the node is {state}, by a token of the metadata server"


def confined(service: Service) -> str:
    """In the unit's place a program can write to the state directory and nowhere else, and none of the worse things."""
    service.fresh()
    found = service.sandboxed("probe.py")
    expect(not found["possible"], f"it could {', '.join(found['possible'])}")
    writable = found["writable"]
    # The simulated machine's devices are for all to open, as its real ones are, and so is its drop box.
    outside = [path for path in writable if not path.startswith((f"/{STATE}", f"{SIMULATOR}/"))]
    expect(f"/{STATE}" in writable, "it cannot write to the state directory")
    expect(not outside, f"it could write to {', '.join(outside)}")
    return "nothing can be written but the state directory"


def bounded(service: Service) -> str:
    """TasksMax and MemoryHigh leave room, with more callers than are served at a time and all signals on."""
    service.fresh(monitoring={"read": True, "export": True})
    until(lambda: all(_hears(service, name) for name in (*HEARD, "monitoring")), 20, "all signals answer")
    quiet = int(service.process()["Threads"])
    enough = quiet + SERVED - 4  # some of gRPC's may have ended meanwhile
    service.background("callers", PYTHON, f"{GUEST}/callers.py", "127.0.0.1", "9478", str(CALLERS))
    try:
        until(lambda: int(service.process()["Threads"]) >= enough, 20, f"{SERVED} callers are served")
        process = service.process()
    finally:
        service.machine.run("systemctl", "stop", "callers", check=False)
    until(service.status, 20, "it answers again")
    threads, tasks = int(process["Threads"]), int(service.show("TasksMax"))
    peak, high = int(process["VmHWM"].split()[0]) // KIB_PER_MIB, int(service.show("MemoryHigh")) // MIB
    elsewhere = threads + ENGINE_THREADS  # at most, on a host with more cores
    expect(elsewhere + SPARE_TASKS <= tasks, f"up to {elsewhere} threads leave too little of TasksMax={tasks}")
    expect(2 * peak <= high, f"{peak} MiB are more than half of MemoryHigh={high} MiB")
    expect(service.show("NRestarts") == "0", "it was restarted")
    return f"{threads} threads of {tasks}, {peak} MiB of {high}"


def _hears(service: Service, name: str) -> bool:
    signal = service.signal(name)
    return bool(signal and signal["problem"] is None and signal["at"])


def _faults(service: Service) -> list[Event]:
    return [event for event in service.events() if event.cause.is_fault]


def _holders(service: Service) -> list[Any]:
    status = service.status()
    return (status and status["host"] and status["host"]["holders"]) or []
