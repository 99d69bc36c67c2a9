"""Tells the tpuwatch of this machine how far a training loop has come: `heartbeat`, `steps`, `keras_callback`.

Needs nothing but Python's standard library, so that this one file may be copied into a project. A call costs about a
microsecond, never waits, and never raises: where nobody listens nothing happens. At most one message a second leaves
for each name; what the calls between two messages say is summed up in the next one. The last of them goes out at the
process's end. docs/heartbeats.md has examples.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

T = TypeVar("T")

SOCKET_VARIABLE: Final = "TPUWATCH_SOCKET"  # in the environment of a job: the path of the daemon's socket
SOCKET: Final = "/var/lib/tpuwatch/heartbeats.socket"
MAX_BYTES: Final = 2048  # of a message
MAX_NUMBERS: Final = 16  # in a message, besides those of the loop itself
NAME: Final = re.compile(r"[A-Za-z0-9._-]{0,64}")
_EVERY_SECONDS: Final = 1.0
_MAX_NAMES: Final = 64  # in one process


def heartbeat(step: Any, *, name: str = "", input_seconds: float = 0.0, **numbers: Any) -> None:
    """A loop has done step number `step`. `name` tells loops of one process apart.

    `input_seconds`: for how long it waited for the step's input. `numbers`: loss and the like, as int or float, NumPy's
    or JAX's. An array of JAX that is not computed yet is not waited for: the message waits for it. Other types, a
    tensor of PyTorch among them, are left out: reading one may wait for the device.
    """
    with suppress(Exception):  # training goes on, whatever is wrong here
        loop = _loops.get(name)
        if loop is None:
            loop = _new_loop(name)
        loop.beat(step, input_seconds, numbers)


def done(*, name: str = "") -> None:
    """The loop of that name has ended: that no step follows is no standstill, though the process goes on."""
    with suppress(Exception):
        if name in _loops:
            _loops[name].send_rest(done=True)


class steps(Generic[T]):  # noqa: N801 # it is called as a function is: `for batch in steps(batches):`
    """Iterates over the input of a loop, one step each, and sends heartbeats with the time that the input took.

    `start` is the number of steps that were done before. `note(loss=…)` adds numbers to the step's heartbeat.
    When the input is used up, or the loop is left, the loop counts as done until its next step.
    """

    def __init__(self, batches: Iterable[T], *, name: str = "", start: int = 0) -> None:
        self.step = start
        self._batches = batches
        self._name = name
        self._numbers: dict[str, Any] = {}

    def note(self, **numbers: Any) -> None:
        """Add numbers to the heartbeat of the step that is under way."""
        self._numbers = numbers

    def __iter__(self) -> Iterator[T]:
        batches = iter(self._batches)
        try:
            while True:
                began = time.monotonic()
                try:
                    batch = next(batches)
                except StopIteration:
                    return
                waited = time.monotonic() - began
                yield batch
                self.step += 1
                heartbeat(self.step, name=self._name, input_seconds=waited, **self._numbers)
        finally:
            done(name=self._name)


def keras_callback(*, name: str = "", keras: Any = None) -> Any:
    """A callback for `model.fit`. `keras`: the module that the model is of; without it the package keras.

    The time between two batches counts as waiting for input: with the JAX backend that is where Keras waits for it.
    With TensorFlow's it waits within the step, where it cannot be seen from here.
    """
    if keras is None:
        import keras  # type: ignore[import-not-found,no-redef,unused-ignore] # only in the user's own environment

    class Heartbeat(keras.callbacks.Callback):  # type: ignore[misc,name-defined,unused-ignore] # the user's own class
        """Sends a heartbeat for each batch, numbered from the first of the first epoch."""

        def __init__(self) -> None:
            super().__init__()
            self._before = 0  # batches of earlier epochs
            self._batch = -1
            self._ended = 0.0
            self._waited = 0.0

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002 # Keras' own
            self._before += self._batch + 1
            self._batch = -1
            self._ended = 0.0

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002 # Keras' own
            self._waited = time.monotonic() - self._ended if self._ended else 0.0

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self._batch = batch
            heartbeat(self._before + batch + 1, name=name, input_seconds=self._waited, **_named(logs))
            self._ended = time.monotonic()

        def on_train_end(self, logs: Any = None) -> None:  # noqa: ARG002 # Keras' own
            done(name=name)

    return Heartbeat()


def flush() -> None:
    """Send what the last calls said and no message has carried yet. At the process's end that is done by itself."""
    for loop in list(_loops.values()):
        with suppress(Exception):
            loop.send_rest()


class _Loop:
    """What the calls for one name have said since its last message."""

    __slots__ = ("_due", "_last", "_name", "_nan", "_sent_at", "_sent_step", "_to_send", "_waited")

    def __init__(self, name: str) -> None:
        self._name = name
        self._due = 0.0  # the next message leaves at this time or later; the first one at once
        self._sent_at = 0.0
        self._sent_step: int | None = None
        self._waited = 0.0
        self._nan: set[str] = set()
        self._to_send: tuple[Any, dict[str, Any], float, float] | None = None  # what waits for arrays of JAX
        self._last: tuple[Any, dict[str, Any], float] | None = None  # the latest call, while no message carries it

    def beat(self, step: Any, input_seconds: float, numbers: dict[str, Any]) -> None:
        now = time.monotonic()
        self._waited += input_seconds
        for key, value in numbers.items():
            if type(value) is float and value != value:  # an array is not compared: that is a program of its own
                self._nan.add(key)
        self._last = (step, numbers, now)
        if now < self._due:
            return
        if self._to_send is None:
            self._to_send = (step, numbers, now, self._waited)
            self._waited = 0.0
        if all(map(_is_ready, (self._to_send[0], *self._to_send[1].values()))):
            chosen, self._to_send = self._to_send, None
            if chosen[2] == now:
                self._last = None
            self._due = now + _EVERY_SECONDS
            self._send(*chosen)

    def send_rest(self, *, done: bool = False) -> None:
        """Send the latest call if no message carries it, without the arrays that are not computed yet; or the end."""
        if self._last is None:
            if done:
                self._send(self._sent_step or 0, {}, time.monotonic(), 0.0, done=True)
            return
        step, numbers, at = self._last
        waited = self._waited + (self._to_send[3] if self._to_send else 0.0)
        self._last = self._to_send = None
        self._waited = 0.0
        if _is_ready(step):
            ready = {key: value for key, value in numbers.items() if _is_ready(value)}
            self._send(step, ready, at, waited, done=done)

    def _send(self, step: Any, numbers: dict[str, Any], at: float, waited: float, *, done: bool = False) -> None:
        number = int(step)
        known = {key: value for key in list(numbers)[:MAX_NUMBERS] if (value := _number(numbers[key])) is not None}
        nan, self._nan = self._nan | {key for key, value in known.items() if value != value}, set()
        message: dict[str, Any] = {
            "step": number,
            "numbers": {key: value for key, value in known.items() if value - value == 0},  # JSON has no infinity
            "nan": sorted(nan)[:MAX_NUMBERS],
        }
        if self._name:
            message["name"] = self._name
        if done:
            message["done"] = True
        if self._sent_step is not None and number > self._sent_step:
            message["steps"] = number - self._sent_step
            message["seconds"] = at - self._sent_at
            message["input_seconds"] = min(waited, at - self._sent_at)
        self._sent_step, self._sent_at = number, at
        _send(json.dumps(message).encode())


_loops: dict[str, _Loop] = {}
_socket: socket.socket | None = None


def _new_loop(name: str) -> _Loop:
    if not NAME.fullmatch(name) or (len(_loops) >= _MAX_NAMES and name not in _loops):
        raise ValueError(name)
    if not _loops:
        atexit.register(_end)
        os.register_at_fork(after_in_child=_loops.clear)  # its loops are the parent's
    return _loops.setdefault(name, _Loop(name))


def _end() -> None:
    """The process ends: send what is left, and close the socket, of which Python's development mode would warn."""
    global _socket
    flush()
    if _socket is not None:
        _socket.close()
        _socket = None


def _send(message: bytes) -> None:
    """Send a message, if the daemon is there and its queue has room. Otherwise it is lost; the next one says more."""
    global _socket  # one for the process
    if _socket is None:
        _socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    with suppress(OSError):  # not there, or full
        _socket.sendto(message, os.environ.get(SOCKET_VARIABLE) or SOCKET)


def _is_ready(value: Any) -> bool:
    """Whether the value can be read without waiting for a device."""
    is_ready = getattr(value, "is_ready", None)
    return is_ready is None or bool(is_ready())


def _number(value: Any) -> float | None:
    """The value of a number of Python, NumPy or JAX; None for anything else."""
    if isinstance(value, int | float):
        return float(value)
    if type(value).__module__.partition(".")[0] in ("numpy", "jax", "jaxlib") and getattr(value, "size", 0) == 1:
        return float(value)
    return None


def _named(logs: Any) -> dict[str, Any]:
    """Keras' logs as numbers with names that `heartbeat` can take."""
    own = ("step", "name", "input_seconds")
    return {str(key): value for key, value in dict(logs or {}).items() if key not in own}
