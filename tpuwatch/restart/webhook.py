"""Notifies operators: small JSON documents are POSTed to the address in [restart]. Slack shows their `text`.

The caller never waits: a thread sends one document after the other, retries for a while, and drops what is too much.
The address is a secret: no message and no error shows more of it than its host.
"""

from __future__ import annotations

import logging
import random
import threading
from collections import deque
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from tpuwatch.core import HttpClient, HttpError, HttpFault, SystemClock, clean, dumps

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

TIMEOUT_SECONDS: Final = 10.0  # for a try: to connect, and for all that is sent and answered together
TRIES: Final = 5
PAUSE_SECONDS: Final = 1.0  # after the first try that failed; doubles, and a random part of it is waited
MAX_PAUSE_SECONDS: Final = 60.0
MAX_QUEUED: Final = 100
_ANSWER_BYTES: Final = 1 << 18
_AGAIN: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_FAULTS: Final = {
    HttpFault.ADDRESS: "webhook_url under [restart] is none that can be asked",
    HttpFault.TIMEOUT: "it did not answer within {}",
    HttpFault.TOO_LARGE: "its answer has no end",
    HttpFault.CERTIFICATE: "it cannot be reached (its certificate is not trusted)",
    HttpFault.BROKEN: "it broke off ({})",
    HttpFault.NOT_HTTP: "it broke off ({})",
}
_TEXT: Final = 2000  # characters

_log = logging.getLogger(__name__)


class Webhook:
    """Sends to one address. `send` and `close` may be called from any thread."""

    def __init__(
        self,
        url: str,
        *,
        counted: Callable[[str], None] = lambda _: None,
        rng: random.Random | None = None,
        wait: Callable[[float], bool] | None = None,
    ) -> None:
        """`counted` is called with "sent", "failed" or "dropped" for each document. `wait` waits so many seconds, or
        until `close`, and returns whether that was called.
        """
        self._url = url
        self.host = urlsplit(url).hostname or ""
        self._counted = counted
        self._rng = rng or random.Random()  # noqa: S311 (spreads tries, keeps no secret)
        self._ending = threading.Event()
        self._wait = wait or self._ending.wait
        self._changed = threading.Condition()
        self._waiting: deque[bytes] = deque()
        self._thread: threading.Thread | None = None
        self._failing = False
        self._http = HttpClient(SystemClock())

    def send(self, document: Mapping[str, Any]) -> None:
        """Have it sent soon. Returns at once, and never raises."""
        body = dumps(document).encode("ascii")
        with self._changed:
            if self._ending.is_set():
                return
            if len(self._waiting) >= MAX_QUEUED:
                self._counted("dropped")
                return
            self._waiting.append(body)
            self._changed.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="webhook", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Send no more; returns at once."""
        with self._changed:
            self._ending.set()
            self._waiting.clear()
            self._changed.notify()

    def join(self, seconds: float) -> bool:
        """Wait for the thread's end after `close`; whether it came."""
        if self._thread is None:
            return True
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (body := self._next()) is not None:
            try:
                why = self._delivered(body)
            except Exception as error:  # noqa: BLE001 # it may quote the address, so that only its type is logged
                why = f"of an unexpected error ({type(error).__name__})"
            if self._ending.is_set() and why:
                return
            self._counted("failed" if why else "sent")
            if why:
                _log.warning("A message to the webhook at %s is lost: %s.", self.host, why)
            elif self._failing:
                _log.info("The webhook at %s takes messages again.", self.host)
            self._failing = bool(why)

    def _next(self) -> bytes | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._ending.is_set())
            return self._waiting.popleft() if not self._ending.is_set() else None

    def _delivered(self, body: bytes) -> str:
        """Try it some times; "" if it was taken, else why not."""
        pause, why = PAUSE_SECONDS, ""
        for left in reversed(range(TRIES)):
            again, why, after = self._tried(body)
            if not why or not again or not left:
                return why
            if self._wait(min(max(self._rng.uniform(0, pause), after), MAX_PAUSE_SECONDS)):
                return why
            pause *= 2
        return why

    def _tried(self, body: bytes) -> tuple[bool, str, float]:
        """Whether it may be tried again, why it was not taken ("" if it was), and after how many seconds at least."""
        try:
            reply = self._http.request(
                self._url,
                seconds=TIMEOUT_SECONDS,
                max_bytes=_ANSWER_BYTES,
                method="POST",
                headers={"Content-Type": "application/json"},
                body=body,
                head_only=True,  # the rest of the answer does not matter, and may never end
                proxies=True,
            )
        except HttpError as error:
            why = _FAULTS.get(error.fault, "it cannot be reached ({})").format(error.detail)
            return error.fault is not HttpFault.ADDRESS, why, 0.0
        if HTTPStatus.OK <= reply.status < HTTPStatus.MULTIPLE_CHOICES:
            return False, "", 0.0
        return reply.status in _AGAIN, f"it answers with status {reply.status}", reply.retry_after or 0.0


def slack(text: str) -> str:
    """Text as Slack shows it as it is: what others wrote may neither link nor call everybody."""
    cut = clean(text, _TEXT)
    return cut.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
