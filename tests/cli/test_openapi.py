"""The OpenAPI description of the embedded service is valid, and is what it answers."""

from __future__ import annotations

import json
import re

import aiohttp
import pytest

from invsvc_async.simulator import Simulator, routes
from tests.simulator.test_operations import FINDABLE, FOR_PERSONS

pytestmark = pytest.mark.one_python


@pytest.fixture
def described(offline):
    """Return what the command prints."""
    ran = offline("serve", "--openapi")
    assert (ran.code, ran.err) == (0, "")
    return json.loads(ran.out)


def problems(described, schema, value):
    """Return what is wrong with *value*, by a validator of JSON schemas."""
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft202012Validator(
        {"components": described["components"], **schema}
    )
    return [
        f"{each.json_path}: {each.message}" for each in validator.iter_errors(value)
    ]


def test_description_is_valid(described):
    """It is valid OpenAPI 3.1, and has the 20 routes of the service."""
    validator = pytest.importorskip("openapi_spec_validator").OpenAPIV31SpecValidator

    assert [*validator(described).iter_errors()] == []
    found = {
        (operation["operationId"], method.upper(), path)
        for path, item in described["paths"].items()
        for method, operation in item.items()
    }
    assert found == set(routes())


async def test_answers_of_the_service(described):
    """Each operation answers with a status and a body of its description, whether applied or refused."""
    async with Simulator() as service, aiohttp.ClientSession() as session:
        for operation, method, path in routes():
            about, (address, body) = (
                described["paths"][path][method.lower()],
                FINDABLE[operation],
            )
            if "{listed}" in address:
                hook = service.seed_webhook()
                address = address.replace("{listed}", hook.id)
            key = service.person_token if operation in FOR_PERSONS else service.api_key
            check_request(described, about, path, address, body)
            calls = [
                (address, key, "2"),
                (f"{address}?limit=x&file_type=x&status=x", "none", "4"),
            ]
            service.script(operation, "pass", "pass", "own 503", "gateway 502")
            for where, token, begin in [
                *calls,
                (address, key, "5"),
                (address, key, "5"),
            ]:
                header = {"Authorization": f"Bearer {token}"}
                async with session.request(
                    method, service.base_url + where, json=body, headers=header
                ) as answer:
                    status, text = str(answer.status), await answer.text()
                if begin == "4" and about.get("security") == []:
                    assert status == "200"
                    continue
                assert status[0] == begin, (operation, text)
                response = (
                    about["responses"].get(status)
                    or about["responses"][f"{status[0]}XX"]
                )
                content = response.get("content")
                schema = content and content["application/json"]["schema"]
                assert (
                    begin == "5" or problems(described, schema, json.loads(text)) == []
                ), operation


@pytest.mark.parametrize(
    ("operation", "query", "body"),
    [
        ("journeys.update", "", {"name": ""}),
        ("invoices.egress", "?limit=x", None),
        ("invoices.egress", "?metadata.order=17&page=1", None),
        ("webhooks.create", "", {"url": 7}),
        ("webhooks.create", "", []),
        ("teams.dbtable_webhooks", "", None),
    ],
)
async def test_answers_about_invalid_requests(described, operation, query, body):
    """A refusal has the form of the description, too, and what its schemas of bodies refuse is refused."""
    method, path = next(each[1:] for each in routes() if each[0] == operation)
    about = described["paths"][path][method.lower()]
    async with Simulator() as service, aiohttp.ClientSession() as session:
        header = {"Authorization": f"Bearer {service.api_key}"}
        address = service.base_url + FINDABLE[operation][0] + query
        async with session.request(
            method, address, json=body, headers=header
        ) as answer:
            status, shown = answer.status, await answer.json()

    response = about["responses"].get(str(status)) or about["responses"]["4XX"]
    assert (
        problems(described, response["content"]["application/json"]["schema"], shown)
        == []
    )
    assert (status == 200) == ("metadata" in query)
    if body is not None:
        schema = about["requestBody"]["content"]["application/json"]["schema"]
        assert problems(described, schema, body)


def check_request(described, about, path, address, body):
    """Check that the request, which the service accepts, is one of the description."""
    named = re.fullmatch(
        re.sub(r"\{(\w+)\}", r"(?P<\1>[^/?]+)", path), address
    ).groupdict()
    given = {
        each["name"]: each["schema"]
        for each in about["parameters"]
        if each["in"] == "path"
    }
    assert given.keys() == named.keys()
    assert [
        problems(described, given[name], value) for name, value in named.items()
    ] == [[]] * len(named)
    assert ("requestBody" in about) == (body is not None)
    if body is not None:
        schema = about["requestBody"]["content"]["application/json"]["schema"]
        assert problems(described, schema, body) == []
