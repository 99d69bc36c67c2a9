"""The permissions that the configuration needs: of watching, restarting, the ledger's bucket, Cloud Monitoring.

Google tells which of them the credentials have, before one is needed: on the project by the Cloud Resource Manager, on
the ledger's bucket by Cloud Storage. What a request has shown counts for more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tpuwatch.core import SystemClock
from tpuwatch.doctor.check import ok, unknown, wrong
from tpuwatch.doctor.credentials import find_credentials
from tpuwatch.doctor.environment import cut
from tpuwatch.doctor.google_apis import SECONDS, identity, monitoring, zones
from tpuwatch.model import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tpuwatch.doctor.check import Result
    from tpuwatch.doctor.environment import Environment
    from tpuwatch.google import PermissionsClient

ROLES: Final = "https://cloud.google.com/iam/docs/roles-permissions/tpu"
VIEWER: Final = "roles/tpu.viewer"
_ADMIN: Final = "roles/tpu.admin"
_STORAGE_ROLES: Final = "https://cloud.google.com/storage/docs/access-control/iam-roles"
_BUCKETS: Final = "https://cloud.google.com/storage/docs/creating-buckets"
_WATCH: Final = ("tpu.nodes.get", "tpu.nodes.list")
_OPERATIONS: Final = ("tpu.operations.get", "tpu.operations.list")
_LEDGER: Final = (
    "storage.objects.get",
    "storage.objects.create",
    "storage.objects.delete",
    "storage.objects.list",
)


def permissions(environment: Environment) -> Iterator[Result]:
    """Those on the project, and on the ledger's bucket if it has one."""
    yield from _of_project(environment)
    if environment.config.ledger.kind == "gcs":
        yield from _of_bucket(environment)


def _of_project(environment: Environment) -> Iterator[Result]:
    project = identity(environment).project.value
    shown = _shown_by_requests(environment)
    needed = _needed(environment)
    asked = [name for names in needed.values() for name in names]
    granted = {name for name, problem in shown.items() if problem is None}
    missing = {name for name, problem in shown.items() if problem is Problem.DENIED}
    fault, fix = "no answer shows it.", ""
    client = _client(environment)
    if client is None:  # another server than Google's, whose permissions nobody tells
        asked = list(shown)
    elif project:
        from tpuwatch.google import ApiError

        try:
            held = client.test(project, asked, _seconds(environment))
            granted |= held - missing
            missing |= set(asked) - granted
        except ApiError as error:
            fault = str(error)
            if error.fault.problem is Problem.DISABLED:
                fix = f"`gcloud services enable cloudresourcemanager.googleapis.com --project={project}`"
    for role, names in needed.items():
        if lacking := [name for name in names if name in missing]:
            yield wrong(f"{_account(environment)} lacks {_listed(lacking)}.", grant(environment, role, project), ROLES)
    if here := [name for name in asked if name in granted]:
        yield ok(f"{_listed(here)} {_is(here)} granted.")
    if open_ := [name for name in asked if name not in granted | missing]:
        yield unknown(f"Whether {_listed(open_)} {_is(open_)} granted is unknown: {cut(fault, 800)}", fix)


def _shown_by_requests(environment: Environment) -> dict[str, Problem | None]:
    """The problems of requests that need a permission, None for those that were answered."""
    problems = {zone.problem for zone in zones(environment)} or {Problem.UNCONFIGURED}
    denied = Problem.DENIED in problems
    shown = {"tpu.nodes.list": Problem.DENIED if denied else next((one for one in problems if one), None)}
    if environment.config.monitoring.read:
        shown["monitoring.timeSeries.list"] = monitoring(environment).problem
    return shown


def _needed(environment: Environment) -> dict[str, tuple[str, ...]]:
    """What the configuration uses, by the role that has it."""
    restart, settings = environment.config.restart, environment.config.monitoring
    changes = (
        *(("tpu.nodes.stop", "tpu.nodes.start") if restart.restart_node else ()),
        *(("tpu.nodes.reset",) if restart.reset_queued_resource else ()),
    )
    needed = {
        VIEWER: (*_WATCH, *(_OPERATIONS if changes else ())),
        _ADMIN: changes,
        "roles/monitoring.viewer": ("monitoring.timeSeries.list",) if settings.read else (),
        "roles/monitoring.metricWriter": ("monitoring.timeSeries.create",) if settings.export else (),
    }
    return {role: names for role, names in needed.items() if names}


def _of_bucket(environment: Environment) -> Iterator[Result]:
    ledger, name = environment.config.ledger, environment.config.ledger.bucket
    try:
        from tpuwatch.google import Bucket, StorageError
    except ImportError:
        yield unknown("Whether the ledger's bucket can be used is unknown without google-cloud-storage.")
        return
    bucket = Bucket(ledger, SystemClock(), lambda _method, _code: None)
    try:
        held = bucket.held(_LEDGER, min(SECONDS, ledger.timeout_seconds))
    except StorageError as error:
        if error.problem is Problem.NOT_FOUND:
            yield wrong(
                f"There is no bucket {name} for the ledger, or none that {_account(environment)} may see.",
                f"`gcloud storage buckets create gs://{name} --location={_region(environment)} "
                "--uniform-bucket-level-access`",
                _BUCKETS,
            )
        else:
            yield unknown(f"The permissions on bucket {name} are unknown: {cut(str(error), 800)}")
        return
    finally:
        bucket.close()
    if lacking := [one for one in _LEDGER if one not in held]:
        yield wrong(
            f"{_account(environment)} lacks {_listed(lacking)} on bucket {name}, which has the ledger.",
            f"`gcloud storage buckets add-iam-policy-binding gs://{name} --member={_member(environment)} "
            "--role=roles/storage.objectUser`",
            _STORAGE_ROLES,
        )
    else:
        yield ok(f"The ledger's bucket {name} can be read and written.")


def _region(environment: Environment) -> str:
    """That of this machine's zone."""
    return identity(environment).zone.value.rpartition("-")[0] or "REGION"


def _client(environment: Environment) -> PermissionsClient | None:
    """Google's, or none where another server than Google's is asked."""
    if environment.permissions is not None or environment.config.cloud.endpoint:
        return environment.permissions
    from tpuwatch.google import PermissionsClient

    return PermissionsClient(SystemClock())


def grant(environment: Environment, role: str, project: str) -> str:
    """The command that grants a role on the project."""
    member = _member(environment)
    return f"`gcloud projects add-iam-policy-binding {project or 'PROJECT'} --member={member} --role={role}`"


def _member(environment: Environment) -> str:
    account = find_credentials(environment).account
    kind = "user" if account and not account.endswith(".gserviceaccount.com") else "serviceAccount"
    return f"{kind}:{account or 'ACCOUNT'}"


def _account(environment: Environment) -> str:
    return find_credentials(environment).account or "The account"


def _seconds(environment: Environment) -> float:
    return min(SECONDS, environment.config.cloud.timeout_seconds)


def _listed(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _is(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"
