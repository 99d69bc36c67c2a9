"""The credentials that requests to Google would use: Application Default Credentials, tried in their order.

The order is Google's: the file that GOOGLE_APPLICATION_CREDENTIALS names, the file of `gcloud auth application-default
login`, the service account of the metadata server. The last one works without importing Google's library.
"""

from __future__ import annotations

import functools
import json
import re
import shlex
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.doctor import metadata
from tpuwatch.doctor.environment import cut, expand_home, once
from tpuwatch.model import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpuwatch.doctor.environment import Environment

VARIABLE: Final = "GOOGLE_APPLICATION_CREDENTIALS"
CLOUD_PLATFORM: Final = "https://www.googleapis.com/auth/cloud-platform"
_ACCOUNT: Final = "instance/service-accounts/default/"
_SECONDS: Final = 5.0
_KINDS: Final = {
    "service_account",
    "authorized_user",
    "external_account",
    "impersonated_service_account",
    "gdch_service_account",
}
_IMPERSONATED: Final = re.compile(r"/serviceAccounts/([^/:]+@[^/:]+):generateAccessToken")
_SIGN_IN: Final = "`gcloud auth application-default login`"


@dataclass(frozen=True, slots=True)
class FoundCredentials:
    """The credentials that were found. If there is a `problem` they cannot be used, and `fix` says what to do."""

    source: str = ""  # "the metadata server", or a file's path
    account: str = ""
    scopes: tuple[str, ...] | None = None  # only those of the metadata server are fixed; None for others
    problem: str = ""
    fix: str = ""
    certain: bool = True  # False: whether there is a problem is unknown


@once
def find_credentials(environment: Environment) -> FoundCredentials:
    """The credentials."""
    named = environment.environ.get(VARIABLE, "")
    if named:
        return _from_file(environment, named, f"`unset {VARIABLE}`, or give it the path of a key file")
    folder = environment.environ.get("CLOUDSDK_CONFIG") or expand_home("~/.config/gcloud", environment.environ)
    left = f"{folder}/application_default_credentials.json"
    if environment.path(left).exists():
        return _from_file(environment, left, _SIGN_IN)
    return _from_metadata(environment)


def _from_file(environment: Environment, path: str, fix: str) -> FoundCredentials:
    shown = cut(path)
    try:
        document = json.loads(environment.text(path))
    except FileNotFoundError:
        return FoundCredentials(shown, problem=f"{shown} does not exist ({VARIABLE}).", fix=fix)
    except OSError as error:
        return FoundCredentials(shown, problem=f"{shown} cannot be read: {error.strerror}.", fix=f"`chmod u+r {shown}`")
    except ValueError:
        return FoundCredentials(shown, problem=f"{shown} is not JSON.", fix=fix)
    kind = document.get("type") if isinstance(document, dict) else None
    if kind not in _KINDS:
        return FoundCredentials(
            shown, problem=f"{shown} holds no credentials of a type that Google's library knows.", fix=fix
        )
    account = cut(str(document.get("client_email") or document.get("account") or ""))
    load = environment.check_credentials or load_and_refresh
    problem, certain = load(str(environment.path(path)))
    if not problem:
        return FoundCredentials(shown, account)
    return FoundCredentials(
        shown,
        account,
        problem=f"{shown} is refused: {cut(problem, 200)}",
        fix=_renewal(kind, account, document),
        certain=certain,
    )


def _renewal(kind: str, account: str, document: Mapping[str, Any]) -> str:
    """What gives credentials of that kind that are not refused."""
    if kind == "authorized_user":
        return _SIGN_IN
    if kind == "impersonated_service_account":  # its source's account lacks the right, and no key would give it
        found = _IMPERSONATED.search(str(document.get("service_account_impersonation_url") or ""))
        target = cut(found[1]) if found else "ACCOUNT"
        return (
            f"Let the account of its source_credentials make tokens for {target}: `gcloud iam service-accounts "
            f"add-iam-policy-binding {shlex.quote(target)} --member=MEMBER "
            "--role=roles/iam.serviceAccountTokenCreator`, where MEMBER is that account, as user:NAME or "
            "serviceAccount:NAME; `gcloud auth list` shows it. Or sign in without impersonation: " + _SIGN_IN
        )
    return (
        "Set the clock right, or make a new key: "
        f"`gcloud iam service-accounts keys create KEY.json --iam-account={account or 'ACCOUNT'}`"
    )


def load_and_refresh(path: str) -> tuple[str, bool]:
    """Get an access token with a credentials file: ("", True), or the problem and whether it is certain."""
    from google.auth import exceptions, load_credentials_from_file
    from google.auth.transport.requests import Request

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about quota projects, which tpuwatch does not need
            credentials: Any = load_credentials_from_file(path, scopes=[CLOUD_PLATFORM])[0]
        credentials.refresh(functools.partial(Request(), timeout=_SECONDS))
    except exceptions.TransportError as error:
        return f"Google's token service could not be reached ({error})", False
    except exceptions.RefreshError as error:
        return str(error.args[0] if error.args else error), not getattr(error, "retryable", False)
    except (exceptions.GoogleAuthError, ValueError) as error:
        return str(error), True
    return "", True


def _from_metadata(environment: Environment) -> FoundCredentials:
    failure = metadata.failure(environment)
    if failure is not None and failure.problem is not Problem.ABSENT:
        return FoundCredentials("the metadata server", problem=str(failure), fix="", certain=False)
    if failure is not None:
        return FoundCredentials(problem="There are no credentials: no file, and no metadata server.", fix=_SIGN_IN)
    account = metadata.value(environment, f"{_ACCOUNT}email")
    if not account:
        return FoundCredentials(
            problem="This VM has no service account, so the metadata server gives no token.",
            fix=f"Make the node with --service-account and --scopes={CLOUD_PLATFORM}, or: {_SIGN_IN}",
        )
    scopes = tuple((metadata.value(environment, f"{_ACCOUNT}scopes") or "").split())
    try:
        token = json.loads(metadata.value(environment, f"{_ACCOUNT}token") or "")
        fresh = bool(token["access_token"]) and float(token["expires_in"]) > 0
    except (ValueError, KeyError, TypeError):
        fresh = False
    problem = "" if fresh else f"The metadata server gives no valid token for {cut(account)}."
    return FoundCredentials(
        "the metadata server", cut(account), scopes, problem, "Give the VM a service account that exists."
    )
