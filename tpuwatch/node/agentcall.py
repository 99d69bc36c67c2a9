"""One question to the tpuwatch of another node, by its HTTP API: how it sees its node, and which node that is.

What comes back may be written by anybody: it is bounded in size and time, each value is checked, text is cleaned and
cut. Never through a proxy, and no redirection is followed.
"""

from __future__ import annotations

import errno
import http.client
import json
import math
import socket
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

from tpuwatch import __version__
from tpuwatch.errors import TpuwatchError
from tpuwatch.health.evidence import Problem, Witness, Word
from tpuwatch.health.verdict import Rung, Sureness, Verdict
from tpuwatch.health.words import clean
from tpuwatch.node.channel import Channel, Dialer, LookupTimeoutError, TooLargeError

if TYPE_CHECKING:
    from tpuwatch.clock import Clock

E = TypeVar("E", bound=Enum)

PATH: Final = "/api/v1/status"
MAX_REPLY_BYTES: Final = 1 << 20  # with the head
_PIECE_BYTES: Final = 1 << 16
_HEADERS: Final = {"Accept": "application/json", "User-Agent": f"tpuwatch/{__version__}", "Connection": "close"}
_MAX_NAME: Final = 64
_MAX_REASONS: Final = 50
_REFUSED: Final = (errno.ECONNREFUSED, errno.ECONNRESET, errno.EPIPE)  # somebody is there to say so: the kernel
_NO_WAY: Final = (errno.EHOSTUNREACH, errno.EHOSTDOWN)  # nobody is


class AgentError(TpuwatchError):
    """No answer that counts. `silent`: nobody seems to be there; `refused`: the machine is, and tpuwatch is not."""

    def __init__(self, problem: Problem, message: str, *, silent: bool = False, refused: bool = False) -> None:
        super().__init__(message)
        self.problem = problem
        self.silent = silent
        self.refused = refused


@dataclass(frozen=True, slots=True)
class Told:
    """What a tpuwatch told of itself."""

    project: str
    zone: str
    node: str  # "" where it does not know
    word: Word | None  # None: it has not judged yet


def ask(url: str, dialer: Dialer, *, clock: Clock, seconds: float) -> Told:
    """Ask the tpuwatch at "http://host:port". Raises AgentError, within little more than `seconds`."""
    deadline = clock.monotonic() + seconds
    try:
        return told(_get(url, dialer, clock, deadline), url)
    except LookupTimeoutError as error:
        raise AgentError(Problem.UNREACHABLE, f"{url}: {error}. Check the DNS.") from error
    except TimeoutError as error:
        raise AgentError(Problem.TIMEOUT, f"{url} did not answer within {seconds:g} s.", silent=True) from error
    except socket.gaierror as error:
        text = f"The name in {url} could not be looked up ({error.strerror}). Check the DNS and `addresses`."
        raise AgentError(Problem.UNREACHABLE, text) from error
    except TooLargeError as error:
        raise _foreign(url, f"its reply is larger than {MAX_REPLY_BYTES} bytes") from error
    except http.client.RemoteDisconnected as error:
        text = f"{url} closed the connection without an answer."
        raise AgentError(Problem.UNREACHABLE, text, refused=True) from error
    except (http.client.HTTPException, ValueError, RecursionError) as error:
        raise _foreign(url, f"what it answers is no JSON over HTTP ({type(error).__name__})") from error
    except OSError as error:
        raise _broken(url, error) from error


def told(document: Any, url: str) -> Told:
    """What the status document tells. Raises AgentError for one that is none of tpuwatch's."""
    identity, node, now = _part(document, "identity"), _part(document, "node"), _number(document, "now_epoch")
    if not isinstance(document, dict) or now is None or not isinstance(document.get("witnesses"), list):
        raise _foreign(url, "what it answers is not the status of a tpuwatch")
    project, zone, name = (_text(_part(identity, key), "value", _MAX_NAME) for key in ("project", "zone", "node"))
    return Told(project, zone, name, _word(node, now))


def _word(node: dict[str, Any], now: float) -> Word | None:
    verdict, judged = _one_of(Verdict, node.get("verdict")), _number(node, "judged_epoch")
    if verdict is None or judged is None:
        return None
    reasons = node.get("reasons")
    listed = reasons[:_MAX_REASONS] if isinstance(reasons, list) else []
    named = (_one_of(Witness, one.get("witness")) for one in listed if isinstance(one, dict))
    return Word(
        verdict=verdict,
        rung=_one_of(Rung, node.get("rung")) or Rung.ASK,
        sureness=_one_of(Sureness, node.get("sureness")) or Sureness.WEAK,
        summary=_text(node, "summary", 200),
        witnesses=frozenset(one for one in named if one is not None),
        age=max(0.0, now - judged),
    )


def _get(url: str, dialer: Dialer, clock: Clock, deadline: float) -> Any:
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    host, port = parts.hostname or "", parts.port or (443 if secure else 80)
    with dialer.connection(host, port, deadline) as plain:
        connection = _wrapped(plain, host) if secure else plain
        with connection:
            request = http.client.HTTPConnection(host, port)
            request.sock = Channel(connection, deadline, clock, MAX_REPLY_BYTES)  # it has the three methods called
            request.request("GET", parts.path.rstrip("/") + PATH, headers=_HEADERS)
            with request.getresponse() as reply:
                return _document(reply, url)


def _document(reply: http.client.HTTPResponse, url: str) -> Any:
    if reply.status != 200:
        text = f"{url} answered {reply.status} to {PATH}. Ask it there what is wrong: tpuwatch status."
        raise AgentError(Problem.SERVER if reply.status >= 500 else Problem.FOREIGN, text)
    # In pieces: a buffer for all would be as large as the reply says it is.
    body = b"".join(iter(lambda: reply.read(_PIECE_BYTES), b""))
    if reply.length:  # it ended before what it had said
        raise ConnectionResetError(errno.ECONNRESET, "the reply was cut off")
    return json.loads(body)


def _wrapped(plain: socket.socket, host: str) -> socket.socket:
    import ssl  # seldom needed

    return ssl.create_default_context().wrap_socket(plain, server_hostname=host)


def _broken(url: str, error: OSError) -> AgentError:
    why = error.strerror or str(error)
    if error.errno in _REFUSED:
        text = f"{url} refuses the connection ({why}): the machine is there, and tpuwatch does not listen on it."
        return AgentError(Problem.UNREACHABLE, text, refused=True)
    if error.errno in _NO_WAY:
        return AgentError(Problem.UNREACHABLE, f"{url} cannot be reached ({why}).", silent=True)
    return AgentError(Problem.UNREACHABLE, f"{url} could not be asked ({why}). Check this machine's own network.")


def _foreign(url: str, why: str) -> AgentError:
    text = f"What answers at {url} is no tpuwatch: {why}. Check `port` and `addresses` under [agents]."
    return AgentError(Problem.FOREIGN, text)


def _part(document: Any, name: str) -> dict[str, Any]:
    found = document.get(name) if isinstance(document, dict) else None
    return found if isinstance(found, dict) else {}


def _text(document: dict[str, Any], name: str, limit: int) -> str:
    found = document.get(name)
    return clean(found, limit) if isinstance(found, str) else ""


def _number(document: Any, name: str) -> float | None:
    found = document.get(name) if isinstance(document, dict) else None
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not abs(found) < 1e15:
        return None
    return float(found) if math.isfinite(found) else None


def _one_of(words: type[E], value: Any) -> E | None:
    return next((word for word in words if word.value == value), None)
