"""Errors of calls to Google APIs: each is classified as a Problem and explained in a sentence that says what to do.

Google's packages are imported only when there is a fault to explain. Texts of servers are cleaned, cut and quoted.
"""

from __future__ import annotations

import concurrent.futures
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.core import LedgerError, TpuwatchError, clean
from tpuwatch.model import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
_MAX_QUOTED_CHARS: Final = 240

# The reason in google.rpc.ErrorInfo is more exact than the code, which is mostly PERMISSION_DENIED.
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
# Without a reason the text decides: by code, each piece of text in lower case.
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
}  # all others are errors of the server
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
        "{role}: `gcloud projects add-iam-policy-binding {project} --member=serviceAccount:ACCOUNT --role={role}`. "
        "ACCOUNT is the account whose credentials tpuwatch has: `tpuwatch doctor`."
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
        "The {api} is asked too often: a quota of {service} in project {project} is exhausted, which all its callers "
        "share. tpuwatch waits; if it lasts, raise `poll_seconds` under [{table}] or the quota."
    ),
    Problem.TIMEOUT: (
        "The {api} at {server} did not return {what} within {seconds:g} s. It is tried again; if it lasts, check the "
        "network path (routes, firewall, Private Google Access)."
    ),
    Problem.UNREACHABLE: (
        "There is no connection to the {api} at {server}. It is tried again; if it lasts, check the network path "
        "(DNS, routes, firewall, Private Google Access)."
    ),
    Problem.SERVER: "The {api} failed to return {what} ({code}). That is an error of the server; it is tried again.",
    Problem.FOREIGN: (
        "What answers at {server} is not the {api}, or not one that can be trusted. Check `endpoint`"
        " under [{table}], whether it speaks TLS, and its certificate."
    ),
    Problem.INTERNAL: "tpuwatch failed to request {what} from the {api} ({code}). Please report this.",
}
_UNAUTHORISED: Final = (
    "The server that issues access tokens for the {api} did not answer. It is tried again; if it lasts, check the "
    "metadata server, or the network path to Google's token server."
)


@dataclass(frozen=True, slots=True)
class RequestContext:
    """What was requested from which API, for the sentence that explains a failure."""

    what: str  # "the nodes of zone us-east5-a in project lab"
    place: str  # what may not exist: "zone us-east5-a in project lab"
    project: str
    server: str  # host:port
    seconds: float  # the deadline
    api: str = "Cloud TPU API"
    service: str = "tpu.googleapis.com"
    permission: str = "tpu.nodes.list"
    role: str = "roles/tpu.viewer"  # has tpu.nodes.list and tpu.nodes.get
    table: str = "cloud"  # of the configuration


@dataclass(frozen=True, slots=True)
class ApiFault:
    """A call that failed."""

    problem: Problem
    code: str  # the gRPC code's name; the nearest one if the call was not made
    sentence: str  # what happened, to what, what to do
    retry_after: float | None = None  # seconds, if the server gave it


class TokenTimeout(TimeoutError):  # noqa: N818 # named as the builtin one is
    """No access token was obtained before the deadline."""


class ApiError(TpuwatchError):
    """A call to a Google API failed; the message is the fault's sentence."""

    def __init__(self, fault: ApiFault) -> None:
        super().__init__(fault.sentence)
        self.fault = fault


def explain(error: BaseException, request: RequestContext) -> ApiFault:
    """The fault behind an exception of google.api_core, google.auth or grpc."""
    import grpc
    from google.api_core import exceptions
    from google.auth.exceptions import GoogleAuthError

    if isinstance(error, grpc.RpcError):
        error = exceptions.from_grpc_error(error)
    if isinstance(error, exceptions.RetryError) and error.cause is not None:
        return explain(error.cause, request)
    if isinstance(error, exceptions.GoogleAPICallError):
        return _of_call(error, request)
    if isinstance(error, GoogleAuthError):
        return _of_credentials(error, request)
    if isinstance(error, TokenTimeout):
        return _without_token(Problem.TIMEOUT, "DEADLINE_EXCEEDED", request, str(error))
    if isinstance(error, (TimeoutError, concurrent.futures.TimeoutError)):
        return _fault(Problem.TIMEOUT, "DEADLINE_EXCEEDED", request)
    if isinstance(error, OSError):
        return _fault(Problem.UNREACHABLE, "UNAVAILABLE", request, str(error))
    return _fault(Problem.INTERNAL, "UNKNOWN", request, f"{type(error).__name__}: {error}")


def _of_call(error: Any, request: RequestContext) -> ApiFault:
    code = error.grpc_status_code.name if error.grpc_status_code else _HTTP_CODES.get(error.code, "UNKNOWN")
    text = str(error.message)
    problem = _BY_REASON.get(error.reason or "") or _by_text(code, text) or _BY_CODE.get(code, Problem.SERVER)
    return _fault(problem, code, request, "" if problem is Problem.TIMEOUT else text, _retry_after(error))


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


def _of_credentials(error: BaseException, request: RequestContext) -> ApiFault:
    from google.auth.exceptions import TransportError

    for cause in _causes(error):
        # An error with a response is a refusal of the token server, and a retry does not help.
        if isinstance(cause, TransportError) and len(cause.args) < 2:
            if "timed out" in str(cause).lower():
                return _without_token(Problem.TIMEOUT, "DEADLINE_EXCEEDED", request, str(cause))
            return _without_token(Problem.UNREACHABLE, "UNAVAILABLE", request, str(cause))
    return _fault(Problem.CREDENTIALS, "UNAUTHENTICATED", request, _text_of(error))


def _text_of(error: BaseException) -> str:
    """The text of an error of google.auth, which nests errors and tuples."""
    text: object = error
    while isinstance(text, (BaseException, tuple)):
        parts = text.args if isinstance(text, BaseException) else text
        if not parts:
            return ""
        text = parts[0]
    return str(text)


def _without_token(problem: Problem, code: str, request: RequestContext, quoted: str) -> ApiFault:
    return ApiFault(problem, code, _UNAUTHORISED.format(api=request.api) + quote(quoted))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _fault(
    problem: Problem, code: str, request: RequestContext, quoted: str = "", retry_after: float | None = None
) -> ApiFault:
    words = {name: getattr(request, name) for name in request.__slots__}
    return ApiFault(
        problem, code, _SENTENCES[problem].format(scope=SCOPE, code=code, **words) + quote(quoted), retry_after
    )


def quote(reply: str) -> str:
    """A sentence that quotes what a server replied, to follow another one; "" for an empty reply."""
    text = clean(reply, _MAX_QUOTED_CHARS)
    return f' The reply was: "{text}".' if text else ""


class StorageError(LedgerError):
    """A request failed and may or may not have been carried out. The message says what happened and what to do."""

    def __init__(
        self, message: str, *, passing: bool, problem: Problem | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.problem = problem
        self.passing = passing  # a retry may succeed
        self.retry_after = retry_after  # seconds, if the server gave it


class PreconditionError(StorageError):
    """The object has another generation than the one that was given."""
