"""The tpuwatch of simulated workers: each answers on a loopback address of its own, as a daemon there would.

One port serves all, since each has an address. What a worker's program does, and what its tpuwatch does, is its
`Workload`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import threading
from typing import TYPE_CHECKING, Final

from tpuwatch.core import dumps, encode
from tpuwatch.model import (
    Action,
    BootDocument,
    Confidence,
    FailureDocument,
    Identity,
    Known,
    NodeVerdictDocument,
    PeerStatusDocument,
    ReasonDocument,
    Signal,
    Source,
    Verdict,
)
from tpuwatch.sim.cloud.metadata_tree import address
from tpuwatch.sim.cloud.nodes import TpuwatchPlay, WorkloadPhase

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tpuwatch.sim.cloud.nodes import SimNode
    from tpuwatch.sim.cloud.world import World

SLOW_SECONDS: Final = 8.0  # of one that answers after most have given up
_PORTS: Final = 20  # that are tried: one has to be free at all addresses
_VERDICTS: Final = {
    WorkloadPhase.NONE: Verdict.IDLE,
    WorkloadPhase.STARTING: Verdict.STARTING,
    WorkloadPhase.COMPILING: Verdict.COMPILING,
    WorkloadPhase.TRAINING: Verdict.HEALTHY,
    WorkloadPhase.STUCK: Verdict.JOB_STUCK,
    WorkloadPhase.HUNG: Verdict.RUNTIME_STUCK,
}


class SimulatedWorkers:
    """Serves the tpuwatch of workers in a thread of its own. Made and closed by the simulator."""

    def __init__(self, world: World, workers: Iterable[tuple[str, int]]) -> None:
        """`workers`: the path of the node and the number of each. Raises OSError."""
        self._world = world
        self.port, self._sockets = _listening(world, list(workers))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="sim-workers", daemon=True)
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Serve from now on."""
        self._thread.start()

    def close(self) -> None:
        """End all of them."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()
        for listener in self._sockets.values():
            listener.close()

    def _run(self) -> None:
        for (path, worker), listener in self._sockets.items():
            self._loop.add_reader(listener, self._accept, path, worker, listener)
        self._loop.run_forever()
        self._loop.run_until_complete(self._end())

    async def _end(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self, path: str, worker: int, listener: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            connection, _ = listener.accept()
            connection.setblocking(False)
            task = self._loop.create_task(self._serve(path, worker, connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, path: str, worker: int, connection: socket.socket) -> None:
        with self._world.lock:
            node = self._world.nodes.get(path)
            play = _play(node, worker)
            reply = _reply(node, worker, self._world) if node is not None and play is not TpuwatchPlay.REFUSES else b""
        try:
            if play is TpuwatchPlay.REFUSES:
                _break_off(connection)
                return
            await self._loop.sock_recv(connection, 65_536)
            if play is TpuwatchPlay.SILENT:
                await self._loop.sock_recv(connection, 1)  # until the other side has given up
                return
            if play is TpuwatchPlay.SLOW:
                await asyncio.sleep(SLOW_SECONDS)
            await self._loop.sock_sendall(connection, reply)
        except OSError:
            pass  # the other side has gone
        finally:
            connection.close()


def _play(node: SimNode | None, worker: int) -> TpuwatchPlay:
    """What the tpuwatch there does; a machine that is down does nothing."""
    if node is None or not node.alive:
        return TpuwatchPlay.SILENT
    return node.workloads[worker].tpuwatch


def _break_off(connection: socket.socket) -> None:
    """As a machine on which nobody listens: on loopback a connection is taken before it can be refused."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    connection.close()


def _reply(node: SimNode, worker: int, world: World) -> bytes:
    body = dumps(encode(status(node, worker, world.clock.time()))).encode()
    head = (
        f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


def status(node: SimNode, worker: int, now: float) -> PeerStatusDocument:
    """What the tpuwatch of a worker reports of itself, as far as others read it."""
    workload = node.workloads[worker]
    verdict = _VERDICTS[workload.phase]
    known = {"project": node.project, "zone": node.zone, "node": node.name, "worker": str(worker)}
    told = NodeVerdictDocument(
        node=node.name,
        project=node.project,
        zone=node.zone,
        own=True,
        verdict=verdict.value,
        judged=now,
        since=workload.since,
        confidence=Confidence.HIGH.value,
        action=Action.NONE.value,
        summary=f"The workload is {workload.phase.value}.",
        sources=(Source.KERNEL.value, Source.RUNTIME.value),
        reasons=(ReasonDocument(signal=Signal.RUNTIME.value, text=f"It is {workload.phase.value}.", at=now),),
        contradictions=(),
        missing=(),
        remedy=(),
        failure=FailureDocument(cause=workload.cause, at=workload.failed) if workload.cause else None,
    )
    identity = Identity(**{name: Known(value, "metadata") for name, value in known.items()})
    boot = BootDocument(boot_id=f"{node.name}-{worker}-{node.boots}")
    return PeerStatusDocument(now=now, signals=(), identity=identity, node=told, host=boot)


def _listening(world: World, workers: list[tuple[str, int]]) -> tuple[int, dict[tuple[str, int], socket.socket]]:
    """A port, and a socket that listens on it at the address of each worker."""
    addresses = {key: address(world.nodes[key[0]], key[1]) for key in workers}
    for _ in range(_PORTS):
        port, opened = 0, dict[tuple[str, int], socket.socket]()
        try:
            for key, host in addresses.items():
                opened[key] = socket.create_server((host, port), backlog=64)
                opened[key].setblocking(False)
                port = opened[key].getsockname()[1]
        except OSError as error:
            for listener in opened.values():
                listener.close()
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            return port, opened
    raise OSError(errno.EADDRINUSE, "no port is free at all addresses of the workers")
