"""The objects of a simulated Cloud Storage: live generations, preconditions, and the limit of writes to one object."""

from __future__ import annotations

import base64
import hashlib
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpuwatch.core.clock import Clock

CHANGES: Final = 100_000  # that are remembered


class Refusal(Exception):  # noqa: N818 (an answer, not a fault of this program)
    """A request that is not carried out: what is answered instead."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


@dataclass(frozen=True, slots=True)
class SimObject:
    """One live object."""

    bucket: str
    name: str
    generation: int
    content: bytes
    content_type: str = "application/octet-stream"
    given: Mapping[str, Any] = field(default_factory=dict)  # of its metadata, by the writer

    @property
    def md5(self) -> str:
        """Its hash, as the API gives it."""
        return base64.b64encode(hashlib.md5(self.content, usedforsecurity=False).digest()).decode()

    def resource(self) -> dict[str, Any]:
        """Its metadata, as the API gives them."""
        return {
            "kind": "storage#object",
            "name": self.name,
            "bucket": self.bucket,
            "generation": str(self.generation),
            "contentType": self.content_type,
            "size": str(len(self.content)),
            "md5Hash": self.md5,
        }


@dataclass(frozen=True, slots=True)
class Change:
    """One write or removal that was carried out."""

    name: str
    before: int  # the generation; 0: there was none


class Objects:
    """All objects of the simulated service. Every read sees every write before it. Safe from any thread.

    A method that takes a `generation` raises Refusal unless it is that of the object that is there; 0: there must be
    none, None: whatever is there.
    """

    def __init__(self, clock: Clock, *, buckets: tuple[str, ...], write_seconds: float = 0.0) -> None:
        """`write_seconds` is the least time between two writes of one object, by the clock; the real one has 1."""
        self.changes: list[Change] = []
        self._clock = clock
        self._write_seconds = write_seconds
        self._lock = threading.Lock()
        self._last = 0
        self._buckets: dict[str, dict[str, SimObject]] = {name: {} for name in buckets}
        self._changed: dict[tuple[str, str], float] = {}

    def get(self, bucket: str, name: str) -> SimObject:
        """The live object. Raises Refusal."""
        with self._lock:
            return self._live(bucket, name)

    def insert(
        self,
        bucket: str,
        name: str,
        content: bytes,
        content_type: str,
        given: Mapping[str, Any],
        generation: int | None = None,
    ) -> SimObject:
        """Write the object in the place of what is there. Raises Refusal."""
        with self._lock:
            objects = self._objects(bucket)
            before = objects[name].generation if name in objects else 0
            _check(before, generation)
            self._change(bucket, name, before)
            self._last = max(self._last + 1, int(self._clock.time() * 1_000_000))
            made = SimObject(bucket, name, self._last, content, content_type, given)
            if given.get("md5Hash", made.md5) != made.md5:
                raise Refusal(400, "invalid", "Provided md5Hash does not match the content.")
            objects[name] = made
            return made

    def delete(self, bucket: str, name: str, generation: int | None = None) -> None:
        """Remove the live object. Raises Refusal."""
        with self._lock:
            before = self._live(bucket, name).generation
            _check(before, generation)
            self._change(bucket, name, before)
            del self._objects(bucket)[name]

    def page(self, bucket: str, prefix: str, after: str, most: int) -> tuple[list[SimObject], str]:
        """The live objects whose names begin so and come after that one, and the last one's name if there are more."""
        with self._lock:
            objects = self._objects(bucket)
            names = sorted(name for name in objects if name.startswith(prefix) and name > after)
            return [objects[name] for name in names[:most]], names[most - 1] if len(names) > most else ""

    def _objects(self, bucket: str) -> dict[str, SimObject]:
        if bucket not in self._buckets:
            raise Refusal(404, "notFound", "The specified bucket does not exist.")
        return self._buckets[bucket]

    def _live(self, bucket: str, name: str) -> SimObject:
        found = self._objects(bucket).get(name)
        if found is None:
            raise Refusal(404, "notFound", f"No such object: {bucket}/{name}")
        return found

    def _change(self, bucket: str, name: str, before: int) -> None:
        """Note a change, if the object may be changed again. Raises Refusal."""
        now = self._clock.monotonic()
        if now - self._changed.get((bucket, name), -self._write_seconds) < self._write_seconds:
            message = f"The object {bucket}/{name} exceeded the rate limit for object mutation operations."
            raise Refusal(429, "rateLimitExceeded", message)
        self._changed[bucket, name] = now
        self.changes.append(Change(name, before))
        del self.changes[:-CHANGES]


def _check(there: int, generation: int | None) -> None:
    if generation not in (None, there):
        raise Refusal(412, "conditionNotMet", "At least one of the pre-conditions you specified did not hold.")
