"""What went wrong with a call to a Google API, in one of tpuwatch's words and a sentence that says what to do.

Google's packages are imported only when there is a fault to explain. Texts of servers are cleaned, cut and quoted.
"""

from __future__ import annotations

import concurrent.futures
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.errors import TpuwatchError
from tpuwatch.health.evidence import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
_SAID_CHARS: Final = 240

# What google.rpc.ErrorInfo gives as the reason. It is more exact than the code, which is PERMISSION_DENIED for most.
_BY_REASON: Final = {
    "ACCESS_TOKEN_SCOPE_INSUFFICIENT": Problem.SCOPE,
    "SERVICE_DISABLED": Problem.DISABLED,
    "CONSUMER_INVALID": Problem.NOT_FOUND,
    "RATE_LIMIT_EXCEEDED": Problem.THROTTLED,
    "ACCESS_TOKEN_EXPIRED": Problem.CREDENTIALS,
    "ACCESS_TOKEN_TYPE_UNSUPPORTED": Problem.CREDENTIALS,
    "ACCOUNT_STATE_INVALID": Problem.CREDENTIALS,
    "CREDENTIALS_MISSING": Problem.CREDENTIALS,
}
# Where there is no reason, the text decides: by code, each piece of text in lower case.
_BY_TEXT: Final[dict[str, tuple[tuple[str, Problem], ...]]] = {
    "PERMISSION_DENIED": (
        ("insufficient authentication scopes", Problem.SCOPE),
        ("has not been used in", Problem.DISABLED),
        ("is not enabled", Problem.DISABLED),
        ("permission denied on 'locations/", Problem.NOT_FOUND),  # "(or it may not exist)"
        ("is not found or access is unauthorized", Problem.NOT_FOUND),  # "Location us-east9-x …"
        ("permission denied on resource project", Problem.NOT_FOUND),
    ),
    "INVALID_ARGUMENT": (("location", Problem.NOT_FOUND), ("zone", Problem.NOT_FOUND)),
    "RESOURCE_EXHAUSTED": (("message larger than max", Problem.INTERNAL),),
    "INTERNAL": (("deserializing response", Problem.FOREIGN),),
    "UNKNOWN": (("received http2 header", Problem.FOREIGN),),
    "UNAVAILABLE": (
        ("getting metadata from plugin failed", Problem.CREDENTIALS),
        ("http1.x server", Problem.FOREIGN),
        ("failed parsing http/2", Problem.FOREIGN),
        ("ssl_error_ssl", Problem.FOREIGN),  # no TLS, or a certificate that is not trusted
        ("peer name", Problem.FOREIGN),  # a certificate for another name
        ("hostname verification", Problem.FOREIGN),
        ("failed to connect", Problem.UNREACHABLE),
        ("resolving", Problem.UNREACHABLE),
        ("resolution", Problem.UNREACHABLE),
        ("lookup", Problem.UNREACHABLE),
        ("connection", Problem.UNREACHABLE),
        ("socket closed", Problem.UNREACHABLE),
        ("broken pipe", Problem.UNREACHABLE),
        ("recvmsg", Problem.UNREACHABLE),
        ("sendmsg", Problem.UNREACHABLE),
        ("keepalive", Problem.UNREACHABLE),
    ),
}
_BY_CODE: Final = {
    "UNAUTHENTICATED": Problem.CREDENTIALS,
    "PERMISSION_DENIED": Problem.DENIED,
    "NOT_FOUND": Problem.NOT_FOUND,
    "RESOURCE_EXHAUSTED": Problem.THROTTLED,
    "DEADLINE_EXCEEDED": Problem.TIMEOUT,
    "UNIMPLEMENTED": Problem.FOREIGN,
    "INVALID_ARGUMENT": Problem.INTERNAL,
    "CANCELLED": Problem.UNREACHABLE,  # only tpuwatch itself cancels, when it closes
}  # all others are errors on their side
_HTTP_CODES: Final = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}

_SENTENCES: Final = {
    Problem.SCOPE: (
        "The {api} refused {what}: the access token lacks the scope {scope}. The scopes of a TPU VM are fixed when it "
        "is created: create it again with --scopes={scope}, or set GOOGLE_APPLICATION_CREDENTIALS to the file of a "
        "service account's key or of an impersonation."
    ),
    Problem.DISABLED: (
        "The {api} is not enabled in project {project}. Enable it: `gcloud services enable {service} "
        "--project={project}`, and wait some minutes."
    ),
    Problem.DENIED: (
        "The {api} refused {what}: the caller needs the permission {permission}. Grant it a role that has it, such as "
        "{role}: `gcloud projects add-iam-policy-binding {project} --member=serviceAccount:EMAIL --role={role}`."
    ),
    Problem.NOT_FOUND: (
        "The {api} knows no {place}, or none that the caller may see. Check `project` and `zone` under [cloud]; "
        "`gcloud compute tpus locations list --project={project}` names the zones."
    ),
    Problem.CREDENTIALS: (
        "The {api} could not be asked for {what}: there are no valid credentials. On a Google Cloud VM attach a "
        "service account; elsewhere run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS "
        "to the file of a key that is valid."
    ),
    Problem.THROTTLED: (
        "The {api} is asked too often: a quota of {service} in project {project} is used up, which all its callers "
        "share. tpuwatch waits; if it lasts, raise `poll_seconds` under [{table}] or the quota."
    ),
    Problem.TIMEOUT: (
        "The {api} at {server} did not tell {what} within {seconds:g} s. It is asked again; if it lasts, check the way "
        "there (routes, firewall, Private Google Access)."
    ),
    Problem.UNREACHABLE: (
        "There is no connection to the {api} at {server}. It is tried again; if it lasts, check the way there (DNS, "
        "routes, firewall, Private Google Access)."
    ),
    Problem.SERVER: "The {api} failed to tell {what} ({code}). That is an error on its side; it is asked again.",
    Problem.FOREIGN: (
        "What answers at {server} is not the {api}, or not one that can be trusted. Check `endpoint`"
        " under [{table}], whether it speaks TLS, and its certificate."
    ),
    Problem.INTERNAL: "tpuwatch failed to ask the {api} for {what} ({code}). Please report this.",
}
_UNAUTHORISED: Final = (
    "The server that gives out access tokens for the {api} could not be asked. It is tried again; if it lasts, check "
    "the metadata server, or the way to Google's token server."
)


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked of which API, in the words that a sentence needs."""

    what: str  # "the nodes of zone us-east5-a in project lab"
    place: str  # what may turn out not to exist: "zone us-east5-a in project lab"
    project: str
    server: str  # host:port
    seconds: float  # the deadline
    api: str = "Cloud TPU API"
    service: str = "tpu.googleapis.com"
    permission: str = "tpu.nodes.list"
    role: str = "roles/tpu.viewer"  # has tpu.nodes.list and tpu.nodes.get
    table: str = "cloud"  # of the configuration


@dataclass(frozen=True, slots=True)
class Fault:
    """A call that failed."""

    problem: Problem
    code: str  # the gRPC code's name; of what failed before there was a call, the code that is nearest
    sentence: str  # what happened, to what, what to do
    retry_after: float | None = None  # seconds, where the server said so


class TokenTimeout(TimeoutError):  # noqa: N818 # named as the builtin one is
    """No access token could be had by the deadline."""


class ApiError(TpuwatchError):
    """A call to a Google API failed; the message is the fault's sentence."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.sentence)
        self.fault = fault


def explain(error: BaseException, asked: Asked) -> Fault:
    """The fault behind whatever google.api_core, google.auth or grpc raised."""
    import grpc
    from google.api_core import exceptions
    from google.auth.exceptions import GoogleAuthError

    if isinstance(error, grpc.RpcError):
        error = exceptions.from_grpc_error(error)
    if isinstance(error, exceptions.RetryError) and error.cause is not None:
        return explain(error.cause, asked)
    if isinstance(error, exceptions.GoogleAPICallError):
        return _of_call(error, asked)
    if isinstance(error, GoogleAuthError):
        return _of_credentials(error, asked)
    if isinstance(error, TokenTimeout):
        return _without_token(Problem.TIMEOUT, "DEADLINE_EXCEEDED", asked, str(error))
    if isinstance(error, (TimeoutError, concurrent.futures.TimeoutError)):
        return _fault(Problem.TIMEOUT, "DEADLINE_EXCEEDED", asked)
    if isinstance(error, OSError):
        return _fault(Problem.UNREACHABLE, "UNAVAILABLE", asked, str(error))
    return _fault(Problem.INTERNAL, "UNKNOWN", asked, f"{type(error).__name__}: {error}")


def cleaned(text: object, chars: int = _SAID_CHARS) -> str:
    """Foreign text on one line, printable, at most so many characters."""
    line = " ".join("".join(char if char.isprintable() else " " for char in str(text)[: 4 * chars]).split())
    return line if len(line) <= chars else line[: chars - 1] + "…"


def _of_call(error: Any, asked: Asked) -> Fault:
    code = error.grpc_status_code.name if error.grpc_status_code else _HTTP_CODES.get(error.code, "UNKNOWN")
    text = str(error.message)
    problem = _BY_REASON.get(error.reason or "") or _by_text(code, text) or _BY_CODE.get(code, Problem.SERVER)
    return _fault(problem, code, asked, "" if problem is Problem.TIMEOUT else text, _retry_after(error))


def _by_text(code: str, text: str) -> Problem | None:
    lower = text.lower()
    return next((problem for piece, problem in _BY_TEXT.get(code, ()) if piece in lower), None)


def _retry_after(error: Any) -> float | None:
    """The delay of google.rpc.RetryInfo in seconds."""
    for detail in error.details or ():
        delay = getattr(detail, "retry_delay", None)
        if delay is not None:
            return float(delay.seconds + delay.nanos / 1e9)
    return None


def _of_credentials(error: BaseException, asked: Asked) -> Fault:
    from google.auth.exceptions import TransportError

    for cause in _causes(error):
        # One with a response was answered: the token server has refused, and asking again will not help.
        if isinstance(cause, TransportError) and len(cause.args) < 2:
            if "timed out" in str(cause).lower():
                return _without_token(Problem.TIMEOUT, "DEADLINE_EXCEEDED", asked, str(cause))
            return _without_token(Problem.UNREACHABLE, "UNAVAILABLE", asked, str(cause))
    return _fault(Problem.CREDENTIALS, "UNAUTHENTICATED", asked, _said(error))


def _said(error: BaseException) -> str:
    """The sentence in an error of google.auth, which wraps some in tuples, and one error in another."""
    said: object = error
    while isinstance(said, (BaseException, tuple)):
        parts = said.args if isinstance(said, BaseException) else said
        if not parts:
            return ""
        said = parts[0]
    return str(said)


def _without_token(problem: Problem, code: str, asked: Asked, said: str) -> Fault:
    return Fault(problem, code, _UNAUTHORISED.format(api=asked.api) + _quoted(said))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _fault(problem: Problem, code: str, asked: Asked, said: str = "", retry_after: float | None = None) -> Fault:
    words = {name: getattr(asked, name) for name in asked.__slots__}
    return Fault(
        problem, code, _SENTENCES[problem].format(scope=SCOPE, code=code, **words) + _quoted(said), retry_after
    )


def _quoted(said: str) -> str:
    text = cleaned(said)
    return f' It was said: "{text}".' if text else ""
