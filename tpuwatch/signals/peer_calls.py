"""One question to the tpuwatch of another machine: what it answers of itself, or why that does not count."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

from tpuwatch.core import ConfigError, DocumentError, HttpError, HttpFault, TpuwatchError, clean, decode
from tpuwatch.model import (
    Action,
    Cause,
    Confidence,
    Identity,
    PeerStatusDocument,
    PeerVerdict,
    Problem,
    Signal,
    Source,
    Verdict,
    WorkloadKind,
)
from tpuwatch.signals.peer_access import PeerAccess

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpuwatch.core import HttpClient, HttpReply
    from tpuwatch.model import NodeVerdictDocument

E = TypeVar("E", bound=Enum)
PATH: Final = "/api/v1/peer"
MAX_REPLY_BYTES: Final = 1 << 18  # with the head
_HEADERS: Final = {"Accept": "application/json"}
_NO_NAME: Final = (
    Problem.UNREACHABLE,
    "The name in {url} could not be looked up ({why}). Check the DNS and `addresses`.",
)
_FOREIGN: Final = "What answers at {url} is no tpuwatch: {why}. Check `port` and `addresses` under [peers]."
_NO_JSON: Final = (Problem.FOREIGN, _FOREIGN.replace("{why}", "what it answers is no JSON over HTTP ({why})"))
_FAULTS: Final = {
    HttpFault.TIMEOUT: (Problem.TIMEOUT, "{url} did not answer within {why}."),
    HttpFault.NO_ROUTE: (Problem.UNREACHABLE, "{url} cannot be reached ({why})."),
    HttpFault.REFUSED: (
        Problem.UNREACHABLE,
        "{url} refuses the connection ({why}): the machine is there, and tpuwatch does not listen on it.",
    ),
    HttpFault.BROKEN: (Problem.UNREACHABLE, "The connection to {url} broke ({why})."),
    HttpFault.NO_NAME: _NO_NAME,
    HttpFault.LOOKUP: _NO_NAME,
    HttpFault.CERTIFICATE: (
        Problem.FOREIGN,
        "The certificate at {url} is not accepted: {why}. Check `ca_file` and `server_name` under [peers].",
    ),
    HttpFault.TLS: (Problem.FOREIGN, "{url} does not speak TLS as it should ({why})."),
    HttpFault.TOO_LARGE: (Problem.FOREIGN, _FOREIGN.replace("{why}", "its reply is {why}")),
    HttpFault.NOT_HTTP: _NO_JSON,
    HttpFault.NOT_JSON: _NO_JSON,
}
_OURS: Final = (Problem.UNREACHABLE, "{url} could not be asked ({why}). Check this machine's own network.")
_SILENT: Final = (HttpFault.TIMEOUT, HttpFault.NO_ROUTE)
_REFUSES: Final = (HttpFault.REFUSED, HttpFault.BROKEN)  # the machine is there: its kernel answers
_MAX_NAME: Final = 64
_MAX_REASONS: Final = 50
_MAX_SUMMARY: Final = 500


class PeerError(TpuwatchError):
    """No answer that counts. `silent`: the host seems to be down; `refused`: the machine is, and tpuwatch is not."""

    def __init__(self, problem: Problem, message: str, *, silent: bool = False, refused: bool = False) -> None:
        super().__init__(message)
        self.problem = problem
        self.silent = silent
        self.refused = refused


@dataclass(frozen=True, slots=True)
class PeerReply:
    """What a tpuwatch reports of itself."""

    project: str
    zone: str
    node: str  # "" where it does not know
    verdict: PeerVerdict | None  # None: it has not judged yet
    boot_id: str = ""  # of its machine's boot; "" where it does not report it
    worker: str = ""  # its number in the node; "" where it does not know


def ask(url: str, client: HttpClient, *, seconds: float, access: PeerAccess | None = None) -> PeerReply:
    """Ask the tpuwatch at "http(s)://host:port". Raises PeerError, within little more than `seconds`."""
    access = access or PeerAccess()
    try:
        reply = client.request(
            f"{url.rstrip('/')}{PATH}",
            seconds=seconds,
            max_bytes=MAX_REPLY_BYTES,
            headers={**_HEADERS, **access.headers()},
            tls=access.tls() if urlsplit(url).scheme == "https" else None,
        )
        return read_reply(_document(reply, url), url)
    except ConfigError as error:
        raise PeerError(Problem.CREDENTIALS, f"The tpuwatch of other nodes cannot be asked: {error}.") from error
    except HttpError as error:
        problem, text = _FAULTS.get(error.fault, _OURS)
        silent, refused = error.fault in _SILENT, error.fault in _REFUSES
        raise PeerError(problem, text.format(url=url, why=error.detail), silent=silent, refused=refused) from error


def read_reply(document: Any, url: str) -> PeerReply:
    """Read the status document. Raises PeerError for one that is not tpuwatch's."""
    try:
        status = decode(PeerStatusDocument, document)
    except DocumentError as error:
        raise _foreign(url, f"what it answers is not the status of a tpuwatch ({clean(str(error), 200)})") from error
    known = status.identity or Identity()
    project, zone, name = (clean(one.value, _MAX_NAME) for one in (known.project, known.zone, known.node))
    boot_id = clean(status.host.boot_id, _MAX_NAME) if status.host is not None else ""
    verdict = _verdict(status.node, status.now) if status.node is not None else None
    return PeerReply(project, zone, name, verdict, boot_id, clean(known.worker.value, _MAX_NAME))


def _verdict(node: NodeVerdictDocument, now: float) -> PeerVerdict | None:
    """None: a newer version's, which is not known here."""
    verdict = _one_of(Verdict, node.verdict)
    if verdict is None:
        return None
    named = (_one_of(Signal, one.signal) for one in node.reasons[:_MAX_REASONS])
    return PeerVerdict(
        verdict=verdict,
        action=_one_of(Action, node.action) or Action.MANUAL,
        confidence=_one_of(Confidence, node.confidence) or Confidence.LOW,
        summary=clean(node.summary, _MAX_SUMMARY),
        signals=frozenset(one for one in named if one is not None),
        age=max(0.0, now - node.judged),
        sources=_sources(node.sources),
        kind=_one_of(WorkloadKind, node.kind),
        failed=_one_of(Cause, node.failure.cause) if node.failure else None,
        failed_age=max(0.0, now - node.failure.at) if node.failure else 0.0,
    )


def _sources(listed: Sequence[str]) -> frozenset[Source]:
    """What its verdict rests on. A version that does not report it is taken at its weakest: anybody's text."""
    named = (_one_of(Source, one) for one in listed[:_MAX_REASONS])
    return frozenset(one for one in named if one is not None) or frozenset({Source.TEXT})


def _document(reply: HttpReply, url: str) -> Any:
    if reply.status == HTTPStatus.UNAUTHORIZED:
        text = f"{url} wants another token: give it one of its own, or its token here, in `token_file` under [peers]."
        raise PeerError(Problem.DENIED, text)
    if reply.status != 200:
        text = f"{url} answered {reply.status} to {PATH}. Ask it there what is wrong: tpuwatch status."
        raise PeerError(Problem.SERVER if reply.status >= 500 else Problem.FOREIGN, text)
    return reply.json()


def _foreign(url: str, why: str) -> PeerError:
    return PeerError(Problem.FOREIGN, _FOREIGN.format(url=url, why=why))


def _one_of(words: type[E], value: str | None) -> E | None:
    return next((word for word in words if word.value == value), None)
