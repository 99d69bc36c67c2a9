"""The OpenAPI description is valid, and every document is as it says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

from tests.unit.web.samples import SampleView
from tests.unit.web.test_frozen import GOLDEN
from tpuwatch.core.codec import decode, encode
from tpuwatch.web.openapi import SERVED, openapi
from tpuwatch.web.routes import Api


def answer_schema(name: str) -> dict[str, Any]:
    """The schema of a document, with the schemas that it refers to."""
    described = openapi()
    answer = described["paths"][f"/api/v1/{name}"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    return {**answer, "components": described["components"]}


def test_the_description_is_openapi() -> None:
    validate(openapi())


def test_every_path_is_described_and_no_other() -> None:
    assert list(openapi()["paths"]) == [f"/api/v1/{name}" for name in SERVED]
    assert set(openapi()["paths"]) == set(Api(SampleView()).routes)


@pytest.mark.parametrize("name", [name for name in SERVED if name != "openapi.json"])
@pytest.mark.parametrize("of", ["", ".dark"])
def test_the_document_is_as_described(name: str, of: str) -> None:
    document = json.loads((GOLDEN / f"{name}{of}.json").read_text())
    assert [error.message for error in Draft202012Validator(answer_schema(name)).iter_errors(document)] == []


@pytest.mark.parametrize("name", [name for name in SERVED if name != "openapi.json"])
@pytest.mark.parametrize("of", ["", ".dark"])
def test_what_is_read_of_it_is_all_that_was_written(name: str, of: str) -> None:
    document = json.loads((GOLDEN / f"{name}{of}.json").read_text())
    form = SERVED[name].document
    assert form is not None
    for one in document if SERVED[name].is_list else [document]:
        assert encode(decode(form, one)) == one


def test_a_document_of_another_form_is_found() -> None:
    document = json.loads((GOLDEN / "status.json").read_text())
    del document["headline"]
    document["node"]["verdict"] = 7
    errors = {error.json_path for error in Draft202012Validator(answer_schema("status")).iter_errors(document)}
    assert errors == {"$", "$.node"}
