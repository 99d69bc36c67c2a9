"""Credentials: files with Google's own library against a token server on loopback, and the metadata server's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.standins.doctor_machine import NOBODY, Place, described, serving, statuses
from tpuwatch.doctor.check import CheckStatus
from tpuwatch.doctor.credentials import load_and_refresh

if TYPE_CHECKING:
    from pathlib import Path

ROOT = "/computeMetadata/v1/"
ACCOUNT = f"{ROOT}instance/service-accounts/default/"
FILE = "/keys/key.json"
VARIABLE = "GOOGLE_APPLICATION_CREDENTIALS"


@pytest.fixture(scope="module")
def private_key() -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()


def account(private_key: str, token_server: str) -> dict[str, str]:
    return {
        "type": "service_account",
        "client_email": "me@lab.iam.gserviceaccount.com",
        "private_key": private_key,
        "private_key_id": "1",
        "token_uri": f"http://{token_server}/token",
    }


def refreshed(tmp_path: Path, private_key: str, token_server: str) -> tuple[str, bool]:
    file = tmp_path / "key.json"
    file.write_text(json.dumps(account(private_key, token_server)))
    return load_and_refresh(str(file))


def test_a_key_is_good_when_it_gets_a_token_and_refused_when_its_server_says_so(
    tmp_path: Path, private_key: str
) -> None:
    with serving({"/token": '200 {"access_token": "x", "expires_in": 3600}'}) as server:
        assert refreshed(tmp_path, private_key, server) == ("", True)
    refusal = '400 {"error": "invalid_grant", "error_description": "Invalid JWT: reasonable timeframe"}'
    with serving({"/token": refusal}) as server:
        problem, certain = refreshed(tmp_path, private_key, server)
    assert ("invalid_grant" in problem, certain) == (True, True)
    problem, certain = refreshed(tmp_path, private_key, server)  # it is gone
    assert ("could not be reached" in problem, certain) == (True, False)
    problem, certain = refreshed(tmp_path, "no key", server)
    assert (problem != "", certain) == (True, True)


def checked(place: Place, environ: dict[str, str], **more: Any) -> list[str]:
    return described("credentials", place.environment(config={}, environ={**NOBODY, **environ}, **more))


@pytest.mark.parametrize(
    ("text", "said", "fix"),
    [
        (None, "/keys/key.json does not exist", f"unset {VARIABLE}"),
        ("{", "is not JSON", f"unset {VARIABLE}"),
        ("[]", "no credentials of a type", f"unset {VARIABLE}"),
        ('{"type": "what"}', "no credentials of a type", f"unset {VARIABLE}"),
    ],
)
def test_a_file_that_holds_no_credentials(place: Place, text: str | None, said: str, fix: str) -> None:
    if text is not None:
        place.write(FILE, text)
    (line,) = checked(place, {VARIABLE: FILE})
    assert line.startswith("wrong: ")
    assert said in line
    assert fix in line


def test_impersonation_that_is_refused_needs_a_right_and_no_key(place: Place) -> None:
    url = "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/tpu@lab.example:generateAccessToken"
    place.write(FILE, json.dumps({"type": "impersonated_service_account", "service_account_impersonation_url": url}))
    denied = "Permission 'iam.serviceAccounts.getAccessToken' denied on resource"
    (line,) = checked(place, {VARIABLE: FILE}, check_credentials=lambda _: (denied, True))
    assert "add-iam-policy-binding tpu@lab.example" in line
    assert "roles/iam.serviceAccountTokenCreator" in line
    assert "clock" not in line


def test_a_file_that_is_refused_and_one_that_is_not(place: Place) -> None:
    place.write(FILE, '{"type": "service_account", "client_email": "me@lab"}')
    (line,) = checked(place, {VARIABLE: FILE}, check_credentials=lambda _: ("invalid_grant", True))
    assert line.startswith("wrong: /keys/key.json is refused: invalid_grant")
    assert "Set the clock right" in line
    (line,) = checked(place, {VARIABLE: FILE}, check_credentials=lambda _: ("not reached", False))
    assert line.startswith("unknown: ")
    (line,) = checked(place, {VARIABLE: FILE}, check_credentials=lambda _: ("", True))
    assert line.startswith("ok: Credentials of /keys/key.json (me@lab) work")


def test_the_file_that_gcloud_leaves(place: Place) -> None:
    left = "/home/me/.config/gcloud/application_default_credentials.json"
    place.write(left, '{"type": "authorized_user"}')
    (line,) = checked(
        place, {"HOME": "/home/me"}, check_credentials=lambda _: ("Token has been expired or revoked.", True)
    )
    assert line.endswith("| gcloud auth application-default login")
    (line,) = checked(place, {"CLOUDSDK_CONFIG": "/nowhere"})
    assert line.startswith("wrong: There are no credentials: no file, and no metadata server")


def vm(**more: str | None) -> dict[str, str]:
    answer = '{"access_token": "secret", "expires_in": 3599}'
    found = {"email": "tpu@lab.iam.gserviceaccount.com", "scopes": "a\nb\n", "token": answer, **more}
    values = {f"{ACCOUNT}{name}": value for name, value in found.items() if value is not None}
    return {f"{ROOT}instance/id": "1", **values}


@pytest.mark.parametrize(
    ("more", "status", "said"),
    [
        ({}, "ok", "Credentials of the metadata server (tpu@lab.iam.gserviceaccount.com) work"),
        ({"email": None}, "wrong", "no service account"),
        ({"token": None}, "wrong", "gives no valid token"),
        ({"token": '{"access_token": "secret", "expires_in": -5}'}, "wrong", "gives no valid token"),
        ({"token": "[]"}, "wrong", "gives no valid token"),
    ],
)
def test_the_metadata_servers_account(place: Place, more: dict[str, str | None], status: str, said: str) -> None:
    with serving(vm(**more)) as address:
        (line,) = checked(place, {"GCE_METADATA_HOST": address})
    assert line.startswith(f"{status}: ")
    assert said in line
    assert "secret" not in line


def test_a_metadata_server_that_is_something_else_leaves_it_open(place: Place) -> None:
    with serving(vm(), flavor="") as address:
        environment = place.environment(config={}, environ={"GCE_METADATA_HOST": address})
        assert statuses("credentials", environment) == [CheckStatus.UNKNOWN]
