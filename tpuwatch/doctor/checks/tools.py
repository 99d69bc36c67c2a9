"""Tools that are used with TPUs: gcloud and its ssh keys."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tpuwatch.core import format_seconds
from tpuwatch.doctor.check import Area, Check, Result, ok, skipped, warn, wrong
from tpuwatch.doctor.environment import expand_home
from tpuwatch.doctor.google_apis import identity
from tpuwatch.doctor.metadata import value
from tpuwatch.doctor.packages import find_on_path, resolve_links

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpuwatch.doctor.environment import Environment

_DISABLED: Final = "https://github.com/circleci/circleci-docs/issues/2174"
_COMPONENTS: Final = "https://cloud.google.com/sdk/docs/components"
_KEYS: Final = "https://cloud.google.com/compute/docs/connect/add-ssh-keys"
_KEY: Final = "~/.ssh/google_compute_engine"
_WANTED: Final = ("alpha", "beta")  # components with TPU commands that are not in gcloud itself yet
_OLD_SECONDS: Final = 365 * 86_400.0


def gcloud(environment: Environment) -> Iterator[Result]:
    """gcloud's path, its component manager, and the components that TPU commands need. It is not run."""
    program = find_on_path("gcloud", environment.root, environment.environ)
    if not program:
        yield skipped("gcloud is not on PATH; tpuwatch does not need it.")
        return
    folder = resolve_links(Path(program), environment.root).parent.parent
    missing = [name for name in _WANTED if not _has(environment, folder, name)]
    installer, install = _installer(environment, folder, missing)
    note = f"; {' and '.join(missing)} commands are missing" if missing else ""
    if installer:
        yield warn(
            f"gcloud is installed by {installer}, so its component manager is disabled: `gcloud components install` "
            f"and `update` fail{note}.",
            install,
            _DISABLED,
        )
    elif missing:
        yield warn(f"gcloud's {' and '.join(missing)} commands are missing.", install, _COMPONENTS)
    else:
        yield ok(f"gcloud is at {folder}, with alpha and beta.")


def _installer(environment: Environment, folder: Path, missing: list[str]) -> tuple[str, str]:
    """What installed gcloud, if that disables the component manager (else ""), and how to install components."""
    if "snap" in folder.parts:
        return "snap", "`sudo snap refresh google-cloud-cli`; alpha and beta are part of it"
    try:
        disabled = bool(json.loads(environment.text(folder / "lib/googlecloudsdk/core/config.json"))["disable_updater"])
    except (OSError, ValueError, KeyError, TypeError):
        disabled = False
    if not disabled:
        return "", f"`gcloud components install {' '.join(missing)}`"
    if environment.path("/etc/debian_version").exists():
        return "apt", "`sudo apt-get update && sudo apt-get install google-cloud-cli`; alpha and beta are part of it"
    return "a package manager", "`sudo dnf install google-cloud-cli`, or the package manager that installed gcloud"


def _has(environment: Environment, folder: Path, component: str) -> bool:
    places = (f".install/{component}.manifest", f"lib/surface/{component}")
    return any(environment.path(folder / place).exists() for place in places)


def ssh_key(environment: Environment) -> Iterator[Result]:
    """The key that gcloud created: permissions, public key, age, and expiry in the metadata."""
    path = expand_home(_KEY, environment.environ)
    if not path.startswith("/") or not environment.path(path).exists():
        yield skipped(f"There is no {_KEY}; gcloud creates it at the first ssh.")
        return
    entry = environment.path(path).stat()
    age = environment.clock.time() - entry.st_mtime
    bad = False
    if entry.st_mode & 0o077:
        bad = True
        yield wrong(f"{_KEY} can be read by others, so ssh refuses it.", f"`chmod 600 {_KEY}`", _KEYS)
    public = environment.text_or_none(f"{path}.pub")
    if public is None:
        bad = True
        yield wrong(f"{_KEY}.pub is missing.", f"ssh-keygen -y -f {_KEY} > {_KEY}.pub", _KEYS)
    for result in _expiry(environment, public or ""):
        bad = True
        yield result
    if age > _OLD_SECONDS:
        bad = True
        yield warn(
            f"{_KEY} is {age / 86_400:.0f} days old; a project's rules or OS Login may no longer accept it.",
            f"`rm {_KEY} {_KEY}.pub`; the next gcloud … ssh creates and uploads a new one",
            _KEYS,
        )
    if not bad:
        yield ok(f"{_KEY} is {age / 86_400:.0f} days old and private.")


def _expiry(environment: Environment, public: str) -> Iterator[Result]:
    """Whether our key is in the metadata and has expired there."""
    ours = public.split()[1:2]
    now = environment.clock.time()
    expiries = [
        expiry
        for path in ("instance/attributes/ssh-keys", "project/attributes/ssh-keys")
        for key, expiry in metadata_keys(value(environment, path) or "")
        if ours == [key]
    ]
    if expiries and all(expiry is not None and expiry < now for expiry in expiries):
        known = identity(environment)
        latest = max(expiry for expiry in expiries if expiry is not None)
        yield wrong(
            f"{_KEY} is in the metadata and expired there {format_seconds(now - latest)} ago.",
            f"`gcloud compute tpus tpu-vm ssh {known.node.value or 'NODE'} --zone {known.zone.value or 'ZONE'}`, from "
            "where you sign in; it uploads the key again",
            _KEYS,
        )


def metadata_keys(text: str) -> Iterator[tuple[str, float | None]]:
    """The keys of an ssh-keys attribute, each with the time when it expires, or None if it does not.

    Lines are `USER:TYPE KEY google-ssh {"userName": …, "expireOn": "2026-11-20T13:44:14+0000"}`, or without expiry.
    """
    for line in text.splitlines()[:1000]:
        _, colon, rest = line.partition(":")
        words = rest.split(None, 3)
        if not colon or len(words) < 2:
            continue
        expiry = None
        if len(words) == 4 and words[2] == "google-ssh":
            try:
                expiry = datetime.strptime(json.loads(words[3])["expireOn"], "%Y-%m-%dT%H:%M:%S%z").timestamp()
            except (ValueError, KeyError, TypeError):
                expiry = None
        yield words[1], expiry


def os_login(environment: Environment) -> Iterator[Result]:
    """Which ssh keys this VM accepts: those of OS Login, or those in the metadata."""
    settings = {
        name: (value(environment, f"instance/attributes/{name}") or value(environment, f"project/attributes/{name}"))
        for name in ("enable-oslogin", "block-project-ssh-keys")
    }
    on = [name for name, word in settings.items() if (word or "").strip().lower() in ("true", "yes", "1", "y")]
    if not environment.config.cloud.enabled or value(environment, "instance/id") is None:
        yield skipped("No metadata server says which ssh keys are accepted.")
    elif "enable-oslogin" in on:
        yield ok("OS Login is on: keys come from Google accounts, and those in the metadata are ignored.")
    elif "block-project-ssh-keys" in on and not value(environment, "instance/attributes/ssh-keys"):
        yield warn(
            "The project's ssh keys are blocked for this VM, and it has no keys: nobody can sign in with a key.",
            f"`gcloud compute instances add-metadata {value(environment, 'instance/name') or 'VM'} --metadata "
            "block-project-ssh-keys=FALSE`, or turn OS Login on",
            _KEYS,
        )
    else:
        yield ok("Keys in the metadata are accepted.")


CHECKS = (
    Check("gcloud", "gcloud and its components", Area.TOOLS, gcloud),
    Check("ssh_key", "the ssh key of gcloud", Area.TOOLS, ssh_key, seconds=8.0),
    Check("ssh_login", "accepted ssh keys", Area.TOOLS, os_login, seconds=8.0),
)
