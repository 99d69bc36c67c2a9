"""Google Cloud: the metadata server, credentials, scopes, the Cloud TPU API, permissions, the nodes."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

from tpuwatch.core import installed
from tpuwatch.doctor import metadata
from tpuwatch.doctor.check import Area, Check, Result, ok, skipped, unknown, warn, wrong
from tpuwatch.doctor.checks.host import chips
from tpuwatch.doctor.checks.permissions import ROLES, VIEWER, grant, permissions
from tpuwatch.doctor.credentials import CLOUD_PLATFORM, find_credentials
from tpuwatch.doctor.environment import cut
from tpuwatch.doctor.google_apis import ZoneNodes, configuration_mismatch, identity, zones
from tpuwatch.model import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tpuwatch.doctor.environment import Environment

_STALL: Final = "https://github.com/jax-ml/jax/issues/14300"
_CREDENTIALS: Final = "https://cloud.google.com/docs/authentication/provide-credentials-adc"
_SCOPES: Final = "https://cloud.google.com/compute/docs/access/service-accounts#accesscopesiam"
_CLOCK: Final = "https://cloud.google.com/compute/docs/instances/configure-ntp"
_SETUP: Final = "https://cloud.google.com/tpu/docs/setup-gcp-account"
_ZONES: Final = "https://cloud.google.com/tpu/docs/regions"
_CONFIGURATION: Final = installed("config.example.toml")

_WARN_SECONDS, _WRONG_SECONDS = 60.0, 300.0  # of clock offset; Google refuses signed requests beyond 5 minutes
_TPU_SCOPES: Final = (CLOUD_PLATFORM, "https://www.googleapis.com/auth/cloud.tpu")
_READ_SCOPES: Final = ("https://www.googleapis.com/auth/monitoring", "https://www.googleapis.com/auth/monitoring.read")
_WRITE_SCOPES: Final = (_READ_SCOPES[0], "https://www.googleapis.com/auth/monitoring.write")

# Problems that are certain. Everything else that prevents an answer is unknown.
_CERTAIN: Final = (
    Problem.DENIED,
    Problem.SCOPE,
    Problem.CREDENTIALS,
    Problem.DISABLED,
    Problem.NOT_FOUND,
    Problem.FOREIGN,
)


def metadata_server(environment: Environment) -> Iterator[Result]:
    """The metadata server, which libtpu and the frameworks query at every start."""
    failure = metadata.failure(environment)
    if failure is None:
        yield ok("It answers.")
    elif failure.problem is Problem.ABSENT and not chips(environment):
        yield skipped("There is none: this is no Google Cloud VM.")
    elif failure.problem in (Problem.ABSENT, Problem.TIMEOUT, Problem.FOREIGN, Problem.DENIED):
        yield wrong(
            f"{failure} libtpu queries it at every start and may wait for minutes.",
            "In a container use --network host; exclude it from proxies (NO_PROXY=metadata.google.internal), and "
            "`unset GCE_METADATA_HOST`. Then this must answer: `curl -H 'Metadata-Flavor: Google' "
            "http://metadata.google.internal/`",
            _STALL,
        )
    else:
        yield unknown(str(failure))


def project_and_zone(environment: Environment) -> Iterator[Result]:
    """Whether project, zone and node are known."""
    known = identity(environment)
    missing = [name for name, found in (("project", known.project), ("zone", known.zone)) if not found.value]
    if missing == ["zone"] and all("/" in node for node in environment.config.cloud.nodes or ("",)):
        missing = []  # each configured node names its own
    failure = metadata.failure(environment)
    if missing and failure is not None and failure.problem is not Problem.ABSENT:
        yield unknown(f"The {' and the '.join(missing)} is unknown until the metadata server answers.")
        return
    if missing:
        yield wrong(
            f"Neither the configuration nor a metadata server names the {' and the '.join(missing)}.",
            " and ".join(f'{name} = "…"' for name in missing) + " under [cloud], or enabled = false there",
            _CONFIGURATION,
        )
        return
    if mismatch := configuration_mismatch(environment):
        fix = 'project = "" and zone = "" under [cloud], to watch the node that this machine belongs to'
        yield warn(mismatch, fix, _CONFIGURATION)
        return
    node = f"node {known.node.value}" if known.node.value else "no node of the Cloud TPU API"
    text = f"Project {known.project.value}, zone {known.zone.value or '(of each node)'}, {node}."
    if known.kubernetes.value and not known.node.value:
        text += f" It is node {known.kubernetes.value} of Kubernetes, which is never restarted through that API."
    yield ok(text)


def clock(environment: Environment) -> Iterator[Result]:
    """This machine's clock compared with Google's."""
    ahead = metadata.seconds_ahead(environment) if metadata.failure(environment) is None else None
    ahead = metadata.seconds_ahead_of_api(environment) if ahead is None else ahead
    if ahead is None:
        yield unknown("Neither the metadata server nor the API gave the time.")
        return
    text = f"This machine's clock is {abs(ahead):.0f} s {'slow' if ahead > 0 else 'fast'}"
    fix = "`sudo timedatectl set-ntp true`, or `sudo systemctl restart chrony`"
    if abs(ahead) > _WRONG_SECONDS:
        yield wrong(f"{text}: signed requests are refused, and the times of logs and cloud do not match.", fix, _CLOCK)
    elif abs(ahead) > _WARN_SECONDS:
        yield warn(f"{text}.", fix, _CLOCK)
    else:
        yield ok("The clock is right.")


def credentials(environment: Environment) -> Iterator[Result]:
    """Application Default Credentials: whether they exist and yield a token."""
    found = find_credentials(environment)
    if not found.problem:
        yield ok(f"Credentials of {found.source}{f' ({found.account})' if found.account else ''} work.")
    elif found.certain:
        yield wrong(found.problem, found.fix, _CREDENTIALS)
    else:
        yield unknown(found.problem, found.fix)


def scopes(environment: Environment) -> Iterator[Result]:
    """The scopes of the metadata server's tokens. Other credentials get the scopes that they request."""
    found = find_credentials(environment)
    if found.scopes is None:
        yield skipped("Only tokens of the metadata server have fixed scopes.")
        return
    settings = environment.config.monitoring
    wanted: list[tuple[str, tuple[str, ...]]] = [("the Cloud TPU API", _TPU_SCOPES)]
    wanted += [("reading Cloud Monitoring", (CLOUD_PLATFORM, *_READ_SCOPES))] if settings.read else []
    wanted += [("writing to Cloud Monitoring", (CLOUD_PLATFORM, *_WRITE_SCOPES))] if settings.export else []
    missing = [(use, any_of) for use, any_of in wanted if not set(any_of) & set(found.scopes)]
    for use, any_of in missing:
        yield wrong(
            f"The VM's access tokens lack a scope for {use}: one of {', '.join(any_of)}.",
            f"Create the node with --scopes={CLOUD_PLATFORM} (a TPU VM's scopes cannot be changed later), or, with a "
            "service account's key: `export GOOGLE_APPLICATION_CREDENTIALS=KEY.json`",
            _SCOPES,
        )
    if not missing:
        yield ok("The VM's access tokens have the required scopes.")


def api(environment: Environment) -> Iterator[Result]:
    """Whether the Cloud TPU API answers for each watched zone."""
    found = zones(environment)
    for zone in found:
        if zone.problem in _CERTAIN:
            fix, source = _fix(environment, zone.problem, zone.watch.project)
            yield wrong(cut(zone.detail, 800), fix, source)
        elif zone.problem is not None:
            yield unknown(cut(zone.detail, 800))
    if not found:
        yield unknown("It cannot be queried without project and zone.")
    elif all(zone.problem is None for zone in found):
        yield ok(f"It answers for {', '.join(zone.watch.where for zone in found)}.")


def nodes(environment: Environment) -> Iterator[Result]:
    """Whether the configured nodes, and the one that this machine belongs to, exist."""
    named = [zone for zone in zones(environment) if zone.watch.names or zone.watch.patterns]
    if not named:
        yield skipped("No node is configured, and this machine belongs to none.")
    for zone in named:
        if zone.problem is not None:
            yield unknown(f"Whether the nodes of {zone.watch.where} exist is unknown without the API.")
            continue
        for name, queued in zone.awaited.items():
            yield ok(f"Node {cut(name)} does not exist yet: its queued resource {queued.name} is {queued.state}.")
        missing = sorted(zone.watch.names - zone.names - zone.awaited.keys())
        for name in missing:
            near = difflib.get_close_matches(name, zone.names, 1)
            yield _no_node(zone, f"no node {cut(name)}", f" Is {cut(near[0])} meant?" if near else "")
        empty = not any(zone.watch.has(name) for name in (*zone.names, *zone.awaited))
        if zone.watch.patterns and empty:
            yield _no_node(zone, "no node that the patterns under [cloud] match")
        if not missing and not empty and not zone.awaited:
            yield ok(f"{len(zone.names)} nodes are in {zone.watch.where}, including all watched ones.")


def _no_node(zone: ZoneNodes, what: str, hint: str = "") -> Result:
    return wrong(
        f"There is {what} in {zone.watch.where}.{hint}",
        "Correct nodes under [cloud]. The existing ones: "
        f"`gcloud compute tpus tpu-vm list --zone={zone.watch.zone} --project={zone.watch.project}`",
        _CONFIGURATION,
    )


def _fix(environment: Environment, problem: Problem, project: str) -> tuple[str, str]:
    """The command that fixes it, and its source."""
    fixes = {
        Problem.DENIED: (grant(environment, VIEWER, project), ROLES),
        Problem.SCOPE: (f"Create the node with --scopes={CLOUD_PLATFORM}.", _SCOPES),
        Problem.CREDENTIALS: ("`gcloud auth application-default login`", _CREDENTIALS),
        Problem.DISABLED: (f"`gcloud services enable tpu.googleapis.com --project={project}`", _SETUP),
        Problem.NOT_FOUND: (f"`gcloud compute tpus locations list --project={project}`", _ZONES),
        Problem.FOREIGN: ("Correct endpoint under [cloud], or leave it out.", _CONFIGURATION),
    }
    return fixes[problem]


def _check(name: str, title: str, look: Callable[[Environment], Iterator[Result]], *, essential: bool = False) -> Check:
    """A check that is skipped where the cloud is disabled, or is used without the credentials that it is about."""

    def run(environment: Environment) -> Iterator[Result]:
        if not environment.config.cloud.enabled:
            yield skipped("The cloud is disabled (enabled under [cloud]).")
        elif environment.config.cloud.insecure and look in (credentials, scopes):  # as a simulator is
            yield skipped("The endpoint is used without credentials (insecure under [cloud]).")
        else:
            yield from look(environment)

    return Check(name, title, Area.CLOUD, run, seconds=20.0, essential=essential)


CHECKS = (
    _check("metadata", "metadata server", metadata_server),
    _check("identity", "project, zone, node", project_and_zone),
    _check("clock", "clock", clock),
    _check("credentials", "credentials", credentials),
    _check("scopes", "scopes", scopes),
    _check("api", "Cloud TPU API", api, essential=True),
    _check("permissions", "permissions", permissions),
    _check("nodes", "configured nodes", nodes),
)
