"""The ledger for several machines: a bucket of Google Cloud Storage, with one small object for each node.

A version is the object's generation, and each write names the one that it replaces: the service itself lets one of many
writers through, and never has the same generation twice. What the service has answered to is stored, and every later
read sees it.

An answer may be lost after the write was done. So each document carries the mark of the write that it is of; after a
refusal it is read back, and if the mark is our own, the write is done. The service is called only when the ledger is
read or written: at rest it costs no request.
"""

from __future__ import annotations

import contextlib
import json
import math
import random
import secrets
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote

from tpuwatch.core import ConflictError, LedgerError
from tpuwatch.google import PreconditionError, StorageError
from tpuwatch.model import Fleet
from tpuwatch.restart.ledger.base import KEPT_NODES, Stored, StoredFleet
from tpuwatch.restart.ledger.codec import DamagedError, decode, decode_fleet, encode

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpuwatch.config import LedgerConfig as Settings
    from tpuwatch.core import Clock
    from tpuwatch.google import Bucket, StoredObject
    from tpuwatch.model import RestartRecord, Target

WRITE_SECONDS: Final = 1.0  # between two writes of one object: the service's limit is one per second
PAUSE_SECONDS: Final = 0.25  # the longest pause after a first fault; doubles
MAX_PAGES: Final = 200
LIST_CALLS: Final = 12  # times as long as one call a whole list may take: it is many calls
READERS: Final = 8  # requests at a time, where many records have to be read
MAX_REMOVED: Final = 100  # records that one purge removes
_MARK: Final = "write"
_FLEET: Final = "fleet.json"
_NODES: Final = "nodes/"

_T = TypeVar("_T")


class GcsLedger:
    """The ledger in the bucket of [ledger]. Safe from any thread; connects at the first call.

    A call takes timeout_seconds of [ledger] at most, and no more than a third of a lease, tries and pauses included:
    who renews a lease in time knows in time whether he still has it.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        *,
        wait: Callable[[float], bool] | None = None,
        rng: random.Random | None = None,
        counted: Callable[[str, str], None] = lambda *_: None,
    ) -> None:
        """`wait` waits so many seconds, or until a stop is requested, and returns whether it is. `counted` is
        called with the method and the code of each request.
        """
        self.where = f"gs://{settings.bucket}/{settings.prefix}"
        self.seconds = min(settings.timeout_seconds, settings.lease_seconds / 3)
        self._settings = settings
        self._clock = clock
        self._wait = wait or threading.Event().wait
        self._rng = rng or random.Random()  # noqa: S311 (it spreads retries)
        self._counted = counted
        self._lock = threading.Lock()
        self._opened: Bucket | None = None
        self._written: dict[str, float] = {}  # when each object was written last, by the monotonic clock
        self._known: dict[str, Stored] = {}  # records as they were seen last, by their objects' names

    # -- what a ledger does

    def read(self, target: Target) -> Stored | None:
        """The node's record; None if it never had one. Raises LedgerError."""
        name = self._name(target)
        found = self._get(name, self._deadline())
        return None if found is None else self._remember(name, Stored(*self._record(name, found)))

    def write(self, record: RestartRecord, version: int) -> Stored:
        """Store it, if the node's record still is `version` (0: there is none). What this returns is stored for good.

        Raises ConflictError if it is not, else LedgerError: then the write is done or not, or may yet be done while the
        version stays, and it is to be read again.
        """
        name = self._name(record.target)
        return self._remember(name, Stored(record, self._put(name, encode(record), version, self._deadline())))

    def records(self) -> list[Stored]:
        """All records, by node. Raises LedgerError.

        One request for a thousand nodes, and one for each record that is not as it was seen last.
        """
        deadline = self._deadline(LIST_CALLS)
        listed = self._listed(deadline)
        with self._lock:
            self._known = {name: stored for name, stored in self._known.items() if name in listed}
            known = {name: stored for name, stored in self._known.items() if stored.version == listed[name]}
        self._read_all(sorted(listed.keys() - known.keys()), deadline)
        with self._lock:
            return [stored for _, stored in sorted(self._known.items())]

    def fleet(self) -> StoredFleet:
        """What is kept of all nodes together. Raises LedgerError."""
        name = self._settings.prefix + _FLEET
        found = self._get(name, self._deadline())
        if found is None:
            return StoredFleet(Fleet(), 0)
        text, _ = self._document(name, found.content)
        return StoredFleet(decode_fleet(text, self.where), found.generation)

    def write_fleet(self, fleet: Fleet, version: int) -> StoredFleet:
        """Store it, as `write` does, and with the same errors."""
        name = self._settings.prefix + _FLEET
        return StoredFleet(fleet, self._put(name, encode(fleet), version, self._deadline()))

    def stamp(self) -> None:
        """Only a request would tell."""

    def server_time(self) -> float | None:
        """The time by Cloud Storage; None before its first answer."""
        with self._lock:
            opened = self._opened
        return opened.server_time if opened is not None else None

    def purge(self) -> int:
        """Remove the records of the nodes that were restarted longest ago, some at a time; how many.

        Raises LedgerError.
        """
        ended = [stored for stored in self.records() if not stored.record.open]
        ended.sort(key=lambda stored: -max(stored.record.entered, stored.record.requested))
        old = ended[KEPT_NODES : KEPT_NODES + MAX_REMOVED]
        for stored in old:
            with contextlib.suppress(PreconditionError):  # it was written meanwhile
                self._bucket().delete(self._name(stored.record.target), stored.version, self.seconds)
        return len(old)

    def set_aside(self) -> bool:
        """Only an operator can: the bucket is used by other machines."""
        return False

    def close(self) -> None:
        """Let go of the connections."""
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    # -- objects

    def _get(self, name: str, deadline: float) -> StoredObject | None:
        return self._retry(lambda left: self._bucket().get(name, left), deadline)

    def _put(self, name: str, text: str, version: int, deadline: float) -> int:
        """Write the object in the place of `version`; its own generation."""
        mark = secrets.token_hex(16)
        content = f'{text[:-1]},"{_MARK}":"{mark}"}}'.encode()

        def attempt(_: float) -> int:
            self._await_turn(name, deadline)
            try:
                return self._bucket().put(name, content, version, self._share(deadline))
            except PreconditionError as error:
                # Ours may have been done, and its answer lost: here, or on the way where a proxy has tried again.
                found = self._bucket().get(name, self._share(deadline))
                if found is not None and self._document(name, found.content)[1] == mark:
                    return found.generation
                raise ConflictError(f"{name} in bucket {self._settings.bucket} has another writer") from error
            finally:
                self._written[name] = self._clock.monotonic()

        return self._retry(attempt, deadline)

    def _listed(self, deadline: float) -> dict[str, int]:
        """The generations of all nodes' objects, by their names."""
        prefix, token, listed = self._settings.prefix + _NODES, "", {}
        for _ in range(MAX_PAGES):
            page, token = self._retry(partial(self._bucket().page, prefix, token), deadline)
            listed.update(page)
            if not token:
                return listed
        # A list that is cut would hide restarts, and with them what was used of the budgets.
        raise LedgerError(f"the list of the ledger in {self.where} does not come to an end")

    def _read_all(self, names: list[str], deadline: float) -> None:
        def read(name: str) -> None:
            found = self._get(name, deadline)
            if found is None:  # removed since it was listed
                with self._lock:
                    self._known.pop(name, None)
            else:
                self._remember(name, Stored(*self._record(name, found)))

        if names:
            with ThreadPoolExecutor(min(READERS, len(names)), "tpuwatch-ledger") as pool:
                done = [pool.submit(read, name) for name in names]
                try:
                    for one in done:
                        one.result()  # what was read before a fault is kept for the next time
                finally:
                    pool.shutdown(cancel_futures=True)

    def _name(self, target: Target) -> str:
        parts = (quote(part, safe="") for part in (target.project, target.zone, target.node))
        return f"{self._settings.prefix}{_NODES}{'/'.join(parts)}.json"

    def _record(self, name: str, found: StoredObject) -> tuple[RestartRecord, int]:
        record = decode(self._document(name, found.content)[0], self.where)
        if self._name(record.target) != name:
            raise DamagedError(f"{name} in bucket {self._settings.bucket} is the record of {record.target.path}")
        return record, found.generation

    def _document(self, name: str, content: bytes) -> tuple[str, str]:
        """The text of what is stored, for the codec, and the mark of the write that it is of."""
        try:
            value: Any = json.loads(content)
            mark = str(value.pop(_MARK))
            return json.dumps(value), mark
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
            raise DamagedError(
                f"{name} in bucket {self._settings.bucket} is damaged ({type(error).__name__}): "
                "look at your nodes, start those that it may have left stopped, then move it away"
            ) from error

    def _remember(self, name: str, stored: Stored) -> Stored:
        with self._lock:
            self._known[name] = stored
        return stored

    # -- time

    def _deadline(self, calls: int = 1) -> float:
        return self._clock.monotonic() + calls * self.seconds

    def _share(self, deadline: float) -> float:
        """What one request may take: half of a call at most, so that one that hangs can be repeated."""
        return max(0.001, min(self.seconds / 2, deadline - self._clock.monotonic()))

    def _retry(self, attempt: Callable[[float], _T], deadline: float) -> _T:
        """Try until it succeeds, it is clear that it will not, or time is up."""
        bound = PAUSE_SECONDS
        while True:
            try:
                return attempt(self._share(deadline))
            except StorageError as error:  # noqa: PERF203 (it is the loop's purpose)
                pause = self._rng.uniform(0.0, bound) + (error.retry_after or 0.0)
                if not error.passing or self._clock.monotonic() + pause >= deadline or self._wait(pause):
                    raise
                bound *= 2

    def _await_turn(self, name: str, deadline: float) -> None:
        """Keep to the service's limit of writes to one object. Who wants an end is not held up."""
        now = self._clock.monotonic()
        turn = self._written.get(name, -math.inf) + WRITE_SECONDS
        if turn >= deadline:
            raise LedgerError(f"{name} in bucket {self._settings.bucket} was written a moment ago: there is no time")
        if turn > now:
            self._wait(turn - now)

    def _bucket(self) -> Bucket:
        with self._lock:
            if self._opened is None:
                try:
                    from tpuwatch.google import storage
                except ImportError as error:
                    raise LedgerError(
                        f"the ledger in {self.where} needs the package google-cloud-storage ({error}): install it with "
                        "`pip install 'tpuwatch[gcs]'`"
                    ) from error
                self._opened = storage.Bucket(self._settings, self._clock, self._counted)
            return self._opened
