"""gcloud and ssh keys."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from tests.standins.doctor_machine import Place, described, expect, serving, statuses
from tpuwatch.doctor.check import CheckStatus
from tpuwatch.doctor.checks.tools import metadata_keys

SDK = "/usr/lib/google-cloud-sdk"
KEY = "/home/me/.ssh/google_compute_engine"
HOME = {"HOME": "/home/me"}
NOW = 1_790_000_000  # of the manual clock


def gcloud(place: Place, folder: str = SDK, *, disabled: bool = True, components: tuple[str, ...] = ()) -> None:
    place.write(f"{folder}/bin/gcloud", mode=0o755)
    place.write(f"{folder}/lib/googlecloudsdk/core/config.json", json.dumps({"disable_updater": disabled}))
    for component in components:
        place.write(f"{folder}/.install/{component}.manifest")
    place.link("/usr/bin/gcloud", os.path.relpath(f"{folder}/bin/gcloud", "/usr/bin"))


def environment(place: Place, **more: Any) -> Any:
    return place.environment(environ={"PATH": "/usr/bin", **HOME}, **more)


def test_gcloud_of_apt(place: Place) -> None:
    gcloud(place, components=("alpha", "beta"))
    place.write("/etc/debian_version", "12.1\n")
    (line,) = described("gcloud", environment(place))
    assert line.startswith("warn: gcloud is installed by apt, so its component manager is disabled")
    assert "sudo apt-get update && sudo apt-get install google-cloud-cli" in line
    assert "missing" not in line


def test_gcloud_of_snap_and_of_another_package_manager(place: Place) -> None:
    gcloud(place, "/snap/google-cloud-cli/77")
    assert "is installed by snap" in described("gcloud", environment(place))[0]
    assert "alpha and beta commands are missing" in described("gcloud", environment(place))[0]
    (place.root / "usr/bin/gcloud").unlink()
    gcloud(place, "/usr/lib64/google-cloud-sdk")
    assert "sudo dnf install" in described("gcloud", environment(place))[0]


def test_gcloud_that_manages_itself(place: Place) -> None:
    gcloud(place, "/home/me/google-cloud-sdk", disabled=False, components=("beta",))
    assert described("gcloud", environment(place)) == [
        "warn: gcloud's alpha commands are missing. | gcloud components install alpha"
    ]
    place.folder("/home/me/google-cloud-sdk/lib/surface/alpha")
    assert statuses("gcloud", environment(place)) == [CheckStatus.OK]


def test_no_gcloud(place: Place) -> None:
    assert statuses("gcloud", environment(place)) == [CheckStatus.SKIPPED]


def key(place: Place, *, mode: int = 0o600, age_days: float = 1.0, public: str | None = "ssh-rsa AAAA me") -> None:
    file = place.write(KEY, "PRIVATE", mode)
    os.utime(file, (NOW - age_days * 86_400,) * 2)
    if public is not None:
        place.write(f"{KEY}.pub", f"{public}\n")


def test_a_good_key(place: Place) -> None:
    key(place)
    assert described("ssh_key", environment(place)) == [
        "ok: ~/.ssh/google_compute_engine is 1 days old and private. | "
    ]


@pytest.mark.parametrize(
    ("fault", "status", "fix"),
    [
        ({"mode": 0o644}, "wrong", "chmod 600 ~/.ssh/google_compute_engine"),
        ({"public": None}, "wrong", "ssh-keygen -y -f ~/.ssh/google_compute_engine >"),
        ({"age_days": 400.0}, "warn", "rm ~/.ssh/google_compute_engine"),
    ],
)
def test_a_key_that_ssh_will_not_take(place: Place, fault: dict[str, Any], status: str, fix: str) -> None:
    key(place, **fault)
    expect("ssh_key", environment(place), f"{status}: ", fix)


def test_no_key(place: Place) -> None:
    assert statuses("ssh_key", environment(place)) == [CheckStatus.SKIPPED]
    assert statuses("ssh_key", place.environment(environ={})) == [CheckStatus.SKIPPED]


def entry(word: str, expiry: str) -> str:
    return f'me:ssh-rsa {word} google-ssh {{"userName":"me","expireOn":"{expiry}"}}\n'


def test_a_key_that_has_expired_in_the_metadata(place: Place) -> None:
    key(place)
    root = "/computeMetadata/v1/"
    pages = {f"{root}instance/id": "1", f"{root}project/attributes/ssh-keys": entry("AAAA", "2026-09-21T12:13:20+0000")}
    with serving(pages) as address:
        variables = {**HOME, "GCE_METADATA_HOST": address}
        (line,) = described("ssh_key", place.environment(environ=variables, config={}))
        assert "is in the metadata and expired there 2 h ago" in line
        pages[f"{root}instance/attributes/ssh-keys"] = "me:ssh-rsa AAAA\n"  # and again without an end
        assert statuses("ssh_key", place.environment(environ=variables, config={})) == [CheckStatus.OK]


def test_keys_of_the_metadata_are_read() -> None:
    text = (
        "me:ssh-rsa AAAA me@here\n"
        + entry("BBBB", "2026-09-21T14:13:20+0000")
        + 'me:ssh-rsa CCCC google-ssh {"no": "expiry"}\nme:ssh-rsa DDDD google-ssh {broken\nnonsense\n\n'
    )
    assert list(metadata_keys(text)) == [("AAAA", None), ("BBBB", NOW * 1.0), ("CCCC", None), ("DDDD", None)]


@pytest.mark.parametrize(
    ("attributes", "status", "said"),
    [
        ({}, "ok", "Keys in the metadata are accepted"),
        ({"project": ("enable-oslogin", "TRUE")}, "ok", "OS Login is on"),
        ({"instance": ("block-project-ssh-keys", "true")}, "warn", "nobody can sign in with a key"),
    ],
)
def test_whose_keys_are_taken(place: Place, attributes: dict[str, tuple[str, str]], status: str, said: str) -> None:
    root = "/computeMetadata/v1/"
    pages = {f"{root}{where}/attributes/{name}": text for where, (name, text) in attributes.items()}
    with serving({f"{root}instance/id": "1", **pages}) as address:
        expect("ssh_login", place.environment(environ={"GCE_METADATA_HOST": address}, config={}), f"{status}: ", said)
    assert statuses("ssh_login", place.environment()) == [CheckStatus.SKIPPED]
