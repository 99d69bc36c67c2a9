"""Notifies operators: small JSON documents are POSTed to the address in [restart]. Slack shows their `text`.

The caller never waits: a thread sends one document after the other, retries for a while, and drops what is too much.
The address is a secret: no message and no error shows more of it than its host.
"""

from __future__ import annotations

import http.client
import logging
import random
import ssl
import threading
import urllib.error
import urllib.request
from collections import deque
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from tpuwatch import __version__
from tpuwatch.core import SystemClock, clean, dumps, parse_retry_after
from tpuwatch.google import DeadlineSocket, TooLargeError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tpuwatch.core import Clock

TIMEOUT_SECONDS: Final = 10.0  # for a try: to connect, and for all that is sent and answered together
TRIES: Final = 5
PAUSE_SECONDS: Final = 1.0  # after the first try that failed; doubles, and a random part of it is waited
MAX_PAUSE_SECONDS: Final = 60.0
MAX_QUEUED: Final = 100
_ANSWER_BYTES: Final = 1 << 18
_AGAIN: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
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
        clock: Clock | None = None,
    ) -> None:
        """`counted` is called with "sent", "failed" or "dropped" for each document. `wait` waits so many seconds, or
        until `close`, and returns whether that was called. A try is bounded by `clock`.
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
        self._opener = urllib.request.build_opener(_NoRedirects(), _Bounded(clock or SystemClock()))

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
        headers = {"Content-Type": "application/json", "User-Agent": f"tpuwatch/{__version__}"}
        try:
            request = urllib.request.Request(self._url, data=body, headers=headers, method="POST")  # noqa: S310
            # What is in the answer does not matter, and it may never end.
            self._opener.open(request, timeout=TIMEOUT_SECONDS).close()
        except urllib.error.HTTPError as error:
            error.close()
            after = parse_retry_after(error.headers.get("Retry-After")) if error.headers else None
            return error.code in _AGAIN, f"it answers with status {error.code}", after or 0.0
        except (ValueError, http.client.InvalidURL):  # their text would quote the address
            return False, "webhook_url under [restart] is none that can be asked", 0.0
        except TooLargeError:
            return True, "its answer has no end", 0.0
        except TimeoutError:
            return True, f"it did not answer within {TIMEOUT_SECONDS:g} s", 0.0
        except urllib.error.URLError as error:
            return True, f"it cannot be reached ({_reason(error.reason)})", 0.0
        except (OSError, http.client.HTTPException) as error:
            return True, f"it broke off ({_reason(error)})", 0.0
        return False, "", 0.0


class _Bounded(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """Opens connections with a deadline."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(lambda host, **more: _Connection(host, self._clock, **more), req)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(lambda host, **more: _SecureConnection(host, self._clock, **more), req)


class _Connection(http.client.HTTPConnection):
    """Has one deadline for all that it sends and reads: a socket's own timeout restarts with every byte."""

    def __init__(self, host: str, clock: Clock, *, timeout: float) -> None:
        super().__init__(host, timeout=timeout)
        self._clock = clock
        self._deadline = clock.monotonic() + timeout

    def connect(self) -> None:
        super().connect()
        self.sock: Any = _Closing(self.sock, self._deadline, self._clock, _ANSWER_BYTES)


class _SecureConnection(_Connection, http.client.HTTPSConnection):
    pass


class _Closing(DeadlineSocket):
    def close(self) -> None:
        self._connection.close()


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect is a failure: a message is meant for where it was addressed to."""

    def redirect_request(self, *_: Any) -> None:
        return None


def slack(text: str) -> str:
    """Text as Slack shows it as it is: what others wrote may neither link nor call everybody."""
    cut = clean(text, _TEXT)
    return cut.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _reason(error: object) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return "its certificate is not trusted"
    if isinstance(error, TimeoutError):
        return f"no answer within {TIMEOUT_SECONDS:g} s"
    return (getattr(error, "strerror", None) if isinstance(error, OSError) else None) or type(error).__name__
