"""Authentication and authorization, and the two bodies of their errors."""

import base64
import json

import pytest

from .conftest import HOOK

pytestmark = pytest.mark.one_python


async def refused(call, **more):
    """Call a read and return status and body."""
    answered = await call("GET", "/webhooks", **more)
    return answered.status, answered.body


async def test_credentials_that_are_none(service, call):
    """A missing header, a missing prefix and an unparseable token get the raw body without an envelope."""
    assert await refused(call, token=None) == (401, {"message": "Unauthorized"})
    assert await refused(call, token="nonsense") == (401, {"message": "Unauthorized"})
    for header in (service.api_key, f"Basic {service.api_key}", "Bearer"):
        async with call.session.get(
            f"{service.base_url}/webhooks", headers={"Authorization": header}
        ) as response:
            assert (response.status, await response.json()) == (
                401,
                {"message": "Unauthorized"},
            )


async def test_key_looks_like_a_jwt(service):
    """An API key is a JWT whose claims name team and mode; all keys differ."""
    claims = service.test_key.split(".")[1]
    read = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    assert (read["team"], read["livemode"]) == ("team_1", False)
    assert (
        len(
            {
                service.api_key,
                service.test_key,
                service.oauth_token,
                service.person_token,
            }
        )
        == 4
    )


async def test_live_and_test_data_are_isolated(service, call):
    """A test key does not see what a live key of the same team creates."""
    hook = (await call("POST", "/webhooks", json=HOOK)).body["data"]
    assert (await call("GET", f"/webhooks/{hook['id']}")).status == 200
    assert (
        await call("GET", f"/webhooks/{hook['id']}", token=service.test_key)
    ).status == 404
    entry = service.ledger.effects()[0]
    assert (entry.team, entry.livemode) == ("team_1", True)


@pytest.mark.parametrize(
    ("kind", "standing", "status", "message", "error"),
    [
        ("api_key", "revoke", 403, "La llave fue revocada", None),
        ("api_key", "expire", 401, "Unauthorized", None),
        (
            "oauth_token",
            "revoke",
            401,
            "Access token has been revoked",
            "token_revoked",
        ),
        (
            "oauth_token",
            "expire",
            401,
            "Access token has expired. Please refresh your token.",
            "token_expired",
        ),
        ("person_token", "revoke", 401, "Access token has been revoked", None),
        (
            "person_token",
            "expire",
            401,
            "Access token has expired. Please refresh your token.",
            None,
        ),
    ],
)
async def test_revoked_and_expired(
    service, call, kind, standing, status, message, error
):
    """Each kind of credential has its own raw body; only OAuth tokens have `error`."""
    token = getattr(service, kind)
    assert (await refused(call, token=token))[0] == 200
    getattr(service, standing)(token)
    answered = await refused(call, token=token)
    assert (answered[0], answered[1]["message"], answered[1].get("error")) == (
        status,
        message,
        error,
    )
    assert answered[1].get("error_description") == (message if error else None)
    assert answered[1].get("details") == ("Invalid API Key" if status == 403 else None)
    assert "success" not in answered[1]


async def test_oauth_token_that_is_unknown(call):
    """An unknown OAuth token is `invalid_token`."""
    answered = await refused(call, token="oat_unknown")
    assert answered == (
        401,
        {
            "message": "Invalid access token",
            "error": "invalid_token",
            "error_description": "Invalid access token",
        },
    )


async def test_connect(service, call):
    """A managing team's key acts on a team of its billing account, which has its own data."""
    made = (await call("POST", "/webhooks", json=HOOK, params={"team": "team_2"})).body[
        "data"
    ]
    assert (await call("GET", f"/webhooks/{made['id']}")).status == 404
    assert (
        await call("GET", f"/webhooks/{made['id']}", params={"team": "team_2"})
    ).status == 200
    assert service.ledger.effects()[0].team == "team_2"
    assert (await call("GET", "/webhooks", params={"team": "team_1"})).status == 200


async def test_connect_that_is_refused(service, call):
    """No team in the token, no managing team, no matching team: 401; no plan feature: 403. All raw."""
    bare = service.issue_key(in_token=False)
    assert await refused(call, token=bare) == (
        401,
        {"message": "Unauthorized, missing team in token"},
    )
    other = {"params": {"team": "team_3"}}
    single = service.issue_key(team="team_2")
    assert await refused(call, token=single, **other) == (
        401,
        {"message": "Unauthorized, not a master team"},
    )
    stranger = service.seed_team(connected=False)
    for team in (stranger.id, "team_nowhere"):
        answered = await refused(call, params={"team": team})
        assert answered == (401, {"message": "Unauthorized, no matched teams"})
    service.set_features("team_1", "suppliers")
    assert (await refused(call, **other))[0] == 403


async def test_connect_with_other_credentials(service, call):
    """Only API keys may name another team."""
    params = {"team": "team_2"}
    answered = await refused(call, token=service.oauth_token, params=params)
    assert answered == (403, {"message": "Team mismatch with OAuth token"})
    assert (await refused(call, token=service.person_token, params=params))[0] == 403
    assert (await refused(call, token=service.oauth_token, params={"team": "team_1"}))[
        0
    ] == 200


async def test_plan_without_api_access(service, call):
    """A plan without API access is a raw 403."""
    service.set_features("team_1", api_access=False)
    status, body = await refused(call)
    assert (status, "success" in body) == (403, False)


async def test_authority_over_journeys(service, call):
    """A journey's update needs admin; the refusal is in the standard envelope and changes nothing."""
    editor = service.issue_key(role="editor")
    answered = await call("PUT", "/journeys/jrn_1", json={"name": "x"}, token=editor)
    assert (answered.status, answered.body["error"]["code"]) == (
        403,
        "insufficient_permissions",
    )
    assert service.ledger.effects() == []


async def test_preferences_need_a_member_in_person(service, call):
    """Keys, OAuth tokens and strangers cannot change preferences."""
    for token in (service.api_key, service.oauth_token):
        answered = await call(
            "PATCH",
            "/users/me/preferences/team_1",
            json={"testmode": True},
            token=token,
        )
        assert answered.status == 403
    answered = await call(
        "PATCH",
        "/users/me/preferences/team_3",
        json={"testmode": True},
        token=service.person_token,
    )
    assert answered.status == 403
    assert service.ledger.effects() == []
