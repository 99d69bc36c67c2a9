"""The ledger for several machines: a bucket of Google Cloud Storage, with one small object for each node.

Each document carries the random mark of the write that made it, and the mark gives its version. Each write names the
object's generation, so the service lets one of many writers through. What the service has confirmed is stored, and
every later read sees it.

A refused write (412) does not prove that another writer was quicker. So the object is read back, and its mark decides:
- Our own mark: the write was done, and its answer was lost.
- The mark of the version to be replaced: nobody has written. The same content has another generation (a copy was put
  back, a job rewrites the bucket), or the service refused although nothing changed. The write is tried again.
- Another mark: there is another writer.

The service is called only when the ledger is read or written: at rest it costs no request.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import random
import secrets
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote

from tpuwatch.core import ConflictError, LedgerError
from tpuwatch.google import PreconditionError, StorageError
from tpuwatch.model import Breaker, Fleet, Problem, RestartRecord
from tpuwatch.restart.ledger.base import KEPT_NODES, Stored, StoredFleet
from tpuwatch.restart.ledger.codec import LOOK, RECOVER, DamagedError, decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpuwatch.config import LedgerConfig as Settings
    from tpuwatch.core import Clock
    from tpuwatch.google import Bucket, StoredObject
    from tpuwatch.model import Target

WRITE_SECONDS: Final = 1.0  # between two writes of one object: the service's limit is one per second
PAUSE_SECONDS: Final = 0.25  # the longest pause after a first fault; doubles
MAX_PAGES: Final = 200
LIST_CALLS: Final = 12  # times as long as one call a whole list may take: it is many calls
READERS: Final = 8  # requests at a time, where many records have to be read
MAX_REMOVED: Final = 100  # records that one purge removes
_MARK: Final = "write"
_FLEET: Final = "fleet.json"
_NODES: Final = "nodes/"
_DAMAGED: Final = "damaged/"  # where damaged objects are kept

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _Document:
    """The content of an object: text for the codec, and the mark of the write that made it."""

    text: str
    mark: str
    generation: int

    @property
    def version(self) -> int:
        """The same for all generations with this mark."""
        return _version(self.mark)


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
        self._generations: dict[str, tuple[int, int]] = {}  # of each object as it was seen last: version and generation

    # -- what a ledger does

    def read(self, target: Target) -> Stored | None:
        """The node's record; None if it never had one. Raises LedgerError."""
        name = self._name(target)
        found = self._get(name, self._deadline())
        return None if found is None else self._remember(name, self._record(name, found))

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
            seen = {name: (stored.version, listed[name]) for name, stored in self._known.items()}
            known = {name for name, one in seen.items() if self._generations.get(name) == one}
        self._read_all(sorted(listed.keys() - known), deadline)
        with self._lock:
            return [stored for _, stored in sorted(self._known.items())]

    def fleet(self) -> StoredFleet:
        """What is kept of all nodes together. Raises LedgerError."""
        name = self._settings.prefix + _FLEET
        found = self._get(name, self._deadline())
        if found is None:
            return StoredFleet(Fleet(), 0)
        return StoredFleet(decode(Fleet, found.text, self._place(name)), found.version)

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
            name = self._name(stored.record.target)
            generation = self._generation(name, stored.version)
            with contextlib.suppress(PreconditionError):  # it was written meanwhile
                if generation is not None:
                    self._bucket().delete(name, generation, self.seconds)
        return len(old)

    def set_aside(self) -> bool:
        """Keep damaged objects under other names, and open the breaker; whether there were any. Raises LedgerError.

        The breaker is opened first. An object that another machine replaces meanwhile stays.
        """
        deadline, fleet = self._deadline(LIST_CALLS), self._settings.prefix + _FLEET
        damaged = self._all_damaged([*self._listed(deadline), fleet], deadline)
        if not damaged:
            return False
        kept = f"{self._settings.prefix}{_DAMAGED}{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(self._clock.time()))}/"
        for name, raw in damaged.items():
            with contextlib.suppress(PreconditionError):  # kept by another machine in the same second
                self._store(kept + name.removeprefix(self._settings.prefix), raw.content, 0, deadline)
        self._open_breaker(damaged.pop(fleet, None), kept, deadline)
        for name, raw in damaged.items():
            with contextlib.suppress(PreconditionError):
                self._retry(partial(self._bucket().delete, name, raw.generation), deadline)
        return True

    def _all_damaged(self, names: list[str], deadline: float) -> dict[str, StoredObject]:
        with ThreadPoolExecutor(READERS, "tpuwatch-ledger") as pool:
            found = pool.map(lambda name: self._damaged(name, deadline), names)
            return {name: raw for name, raw in zip(names, found, strict=True) if raw is not None}

    def _damaged(self, name: str, deadline: float) -> StoredObject | None:
        """The object, if it makes no sense."""
        raw = self._retry(lambda left: self._bucket().get(name, left), deadline)
        if raw is None:
            return None
        try:
            found = self._document(name, raw)
            if name == self._settings.prefix + _FLEET:
                decode(Fleet, found.text, name)
            else:
                self._record(name, found)
        except DamagedError:
            return raw
        except LedgerError:  # of another version of tpuwatch
            return None
        return None

    def _open_breaker(self, damaged: StoredObject | None, kept: str, deadline: float) -> None:
        """Open it, in the place of a damaged object if that is what there is of all nodes together."""
        reason = (
            f"The ledger was damaged, and what could not be read is kept in gs://{self._settings.bucket}/{kept}: what "
            f"was used of the budgets is not known. {LOOK}"
        )
        opened, name = Breaker(opened=self._clock.time(), reason=reason), self._settings.prefix + _FLEET
        if damaged is not None:
            mark = secrets.token_hex(16)
            with contextlib.suppress(PreconditionError):  # another machine was quicker
                self._store(name, _content(encode(Fleet(opened)), mark), damaged.generation, deadline)
            return
        stored = self.fleet()
        breaker = replace(stored.fleet.breaker, opened=opened.opened, reason=reason)
        self._put(name, encode(replace(stored.fleet, breaker=breaker)), stored.version, deadline)

    def close(self) -> None:
        """Let go of the connections."""
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    # -- objects

    def _get(self, name: str, deadline: float) -> _Document | None:
        return self._seen(name, self._retry(lambda left: self._bucket().get(name, left), deadline))

    def _put(self, name: str, text: str, version: int, deadline: float) -> int:
        """Write the object in the place of `version`; its own version."""
        mark = secrets.token_hex(16)
        content = _content(text, mark)

        def attempt(_: float) -> int:
            for _again in range(2):  # without a pause after the look: the next copy may not be far
                generation = self._generation(name, version)
                if generation is not None:
                    with contextlib.suppress(PreconditionError):
                        self._note(name, _version(mark), self._store_once(name, content, generation, deadline))
                        return _version(mark)
                found = self._seen(name, self._bucket().get(name, self._share(deadline)))
                there = 0 if found is None else found.version
                if there == _version(mark):
                    return there  # its answer was lost: here, or on the way where a proxy has tried again
                if there != version:
                    raise ConflictError(f"{name} in bucket {self._settings.bucket} has another writer")
            raise StorageError(
                f"the ledger in bucket {self._settings.bucket} cannot be written: Cloud Storage refuses the write of "
                f"{name} (412), although nobody else has written it. Check what copies or rewrites objects in this "
                "bucket.",
                passing=True,
                problem=Problem.SERVER,
            )

        return self._retry(attempt, deadline)

    def _store(self, name: str, content: bytes, generation: int, deadline: float) -> None:
        """Write the object in the place of that generation. Raises PreconditionError if there is another one."""
        self._retry(lambda _: self._store_once(name, content, generation, deadline), deadline)

    def _store_once(self, name: str, content: bytes, generation: int, deadline: float) -> int:
        self._await_turn(name, deadline)
        was_refused = False
        try:
            return self._bucket().put(name, content, generation, self._share(deadline))
        except PreconditionError:
            was_refused = True
            raise
        finally:
            if not was_refused:
                self._written[name] = self._clock.monotonic()

    def _generation(self, name: str, version: int) -> int | None:
        """The generation of the object in that version; None where it is not known."""
        if not version:
            return 0
        with self._lock:
            seen, generation = self._generations.get(name, (0, 0))
        return generation if seen == version else None

    def _seen(self, name: str, raw: StoredObject | None) -> _Document | None:
        """What was read of an object, remembered."""
        if raw is None:
            return None
        found = self._document(name, raw)
        self._note(name, found.version, found.generation)
        return found

    def _note(self, name: str, version: int, generation: int) -> None:
        with self._lock:
            self._generations[name] = (version, generation)

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
                self._remember(name, self._record(name, found))

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

    def _record(self, name: str, found: _Document) -> Stored:
        record = decode(RestartRecord, found.text, self._place(name))
        if self._name(record.target) != name:
            raise DamagedError(f"{self._place(name)} is the record of {record.target.path}: {RECOVER}")
        return Stored(record, found.version)

    def _document(self, name: str, raw: StoredObject) -> _Document:
        try:
            value: Any = json.loads(raw.content)
            mark = str(value.pop(_MARK))
            return _Document(json.dumps(value), mark, raw.generation)
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
            raise DamagedError(f"{self._place(name)} is damaged ({type(error).__name__}): {RECOVER}") from error

    def _place(self, name: str) -> str:
        return f"gs://{self._settings.bucket}/{name}"

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


def _content(text: str, mark: str) -> bytes:
    return f'{text[:-1]},"{_MARK}":"{mark}"}}'.encode()


def _version(mark: str) -> int:
    """A number for a mark: never 0, which means that there is no object."""
    return int.from_bytes(hashlib.blake2b(mark.encode(), digest_size=8).digest(), "big") or 1
