"""Where a client's settings come from: the environment first, then a profile of the file."""

from __future__ import annotations

import os
import stat
import tomllib
from pathlib import Path

import pytest

from invsvc_async import (
    ApiKey,
    Client,
    ConfigurationError,
    ParameterNames,
    ReconcilePolicy,
)
from invsvc_async.profiles import profile_of, settings_of, with_profile, write_profile

FILE = """
default_profile = "live"

[profiles.live]
base_url = "https://live.example/v2"

[profiles.staging]
base_url = "http://staging.example/v2"
team = "team_7"
allow_insecure_http = true

[profiles.staging.names]
limit = "page_size"
page = ""

[profiles.staging.reconcile]
deadline = 20.0
journey_reader = ""
"""
STAGING = {
    "base_url": "http://staging.example/v2",
    "team": "team_7",
    "allow_insecure_http": True,
    "names": ParameterNames(limit="page_size", page=None),
    "reconcile": ReconcilePolicy(deadline=20.0, journey_reader=None),
}


def from_environment(environment, profile, **more):
    """Return the settings that a client takes from *environment* and a profile."""
    return settings_of(environment, profile_of(environment, profile), **more)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "invsvc.toml").write_text(FILE)
    return tmp_path


def test_profile_by_default():
    """Without a word the file's own choice is taken."""
    assert from_environment({}, None, has_credential=True) == {
        "base_url": "https://live.example/v2"
    }


@pytest.mark.parametrize(
    ("asked", "profile"), [(None, "staging"), ("staging", None), ("nowhere", "staging")]
)
def test_profile_that_is_asked_for(asked, profile):
    """A profile is chosen by argument or else by environment; an empty text in it switches a name off."""
    assert (
        from_environment({"INVSVC_PROFILE": asked} if asked else {}, profile) == STAGING
    )


def test_environment_and_file():
    """The environment goes before the file, value by value."""
    found = from_environment(
        {"INVSVC_BASE_URL": "https://other.example/v2", "INVSVC_TEAM": "team_1"},
        "staging",
    )

    assert found == STAGING | {"base_url": "https://other.example/v2", "team": "team_1"}


def test_file_elsewhere(here):
    """The file may stand anywhere."""
    (here / "invsvc.toml").rename(here / "mine.toml")

    assert from_environment({"INVSVC_CONFIG": "mine.toml"}, "staging") == STAGING


@pytest.mark.parametrize("path", ["nope.toml", "."])
def test_file_elsewhere_that_is_not_there(path):
    """A file that is named must exist: without its team, a write would go to another one."""
    with pytest.raises(ConfigurationError, match=r"INVSVC_CONFIG: .* is not a file"):
        from_environment(
            {"INVSVC_CONFIG": path, "INVSVC_BASE_URL": "https://x.example/v2"}, None
        )


def test_file_with_a_misspelt_key(here):
    """It is refused, because the profile would be passed over."""
    (here / "invsvc.toml").write_text(
        'defualt_profile = "live"\n[profiles.live]\nteam = "team_7"\n'
    )

    with pytest.raises(ConfigurationError, match="defualt_profile not allowed"):
        from_environment({"INVSVC_BASE_URL": "https://x.example/v2"}, None)


def test_no_file(here, monkeypatch):
    """Without a file the environment is enough, but not where a profile is asked for."""
    (here / "invsvc.toml").unlink()

    assert from_environment({"INVSVC_BASE_URL": "https://x.example/v2"}, None) == {
        "base_url": "https://x.example/v2"
    }
    with pytest.raises(
        ConfigurationError, match=r"'live' was requested, but .* does not exist"
    ):
        from_environment({}, "live")
    monkeypatch.delenv("INVSVC_BASE_URL", raising=False)
    with pytest.raises(ConfigurationError, match="Set INVSVC_BASE_URL"):
        Client.from_env(credential=ApiKey("key"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[profiles", "cannot be read"),
        ("[profiles.other]", "has no profile 'live'.*: other"),
        ("profiles = 3", "has no profile 'live'.*: none"),
        (
            '[profiles.live]\napi_key = "x"',
            "api_key not allowed.*tokens belong in the environment",
        ),
        ("[profiles.live]\nbase_url = 3", "base_url must be a string"),
        (
            '[profiles.live]\nallow_insecure_http = "yes"',
            "allow_insecure_http must be true or false",
        ),
        ('[profiles.live]\nnames = "x"', "names must be a table"),
        ('[profiles.live.names]\nlimitt = "x"', "names: limitt not allowed"),
        ("[profiles.live.reconcile]\ndeadline = -1", "reconcile: .*deadline"),
    ],
)
def test_file_that_is_wrong(here, text, said):
    """What cannot stand in the file is named, with the profile."""
    (here / "invsvc.toml").write_text(text)

    with pytest.raises(ConfigurationError, match=said):
        from_environment({}, "live")


async def test_client_from_the_environment(monkeypatch):
    """A client takes profile, credential and what else it is told."""
    for name in ("BASE_URL", "TEAM", "PROFILE", "OAUTH_TOKEN", "PERSON_TOKEN"):
        monkeypatch.delenv(f"INVSVC_{name}", raising=False)
    monkeypatch.setenv("INVSVC_API_KEY", "a-key")
    async with Client.from_env(profile="staging", max_concurrency=7) as client:
        assert (
            repr(client)
            == "Client('http://staging.example/v2', ApiKey(***), team='team_7')"
        )


async def test_settings_go_before_the_environment(here, monkeypatch):
    """Where address and credential are given, neither environment nor file has to have them."""
    (here / "invsvc.toml").unlink()
    for name in (
        "BASE_URL",
        "API_KEY",
        "OAUTH_TOKEN",
        "PERSON_TOKEN",
        "TEAM",
        "PROFILE",
    ):
        monkeypatch.delenv(f"INVSVC_{name}", raising=False)

    async with Client.from_env(
        base_url="https://own.example/v2", credential=ApiKey("key")
    ) as client:
        assert (
            repr(client) == "Client('https://own.example/v2', ApiKey(***), team=None)"
        )


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        ({}, "no token is set"),
        ({"API_KEY": "a", "OAUTH_TOKEN": "b"}, "2 tokens are set"),
    ],
)
def test_credential_of_the_environment(monkeypatch, tokens, said):
    """One credential must be set, and not two."""
    for name in ("API_KEY", "OAUTH_TOKEN", "PERSON_TOKEN"):
        monkeypatch.delenv(f"INVSVC_{name}", raising=False)
    for name, text in tokens.items():
        monkeypatch.setenv(f"INVSVC_{name}", text)

    with pytest.raises(ConfigurationError, match=said):
        Client.from_env(profile="live")


FOUND = {
    "base_url": "http://staging.example/v2", "allow_insecure_http": True,
    "names": {"limit": "size", "order": "direction"}, "reconcile": {"journey_reader": ""},
}  # fmt: skip


def test_profile_that_is_written(here):
    """Into an existing one go the names that were found and what the policy needs; no other line changes."""
    path = here / "invsvc.toml"
    path.write_text(FILE.replace('"page_size"', "'page_size' # as of May"))
    path.chmod(0o640)
    (here / "link.toml").symlink_to(path)

    assert write_profile({"INVSVC_CONFIG": "link.toml"}, "staging", FOUND) == path
    assert path.read_text() == FILE.replace(
        '"page_size"', '"size" # as of May'
    ).replace(
        "[profiles.staging.names]\n", '[profiles.staging.names]\norder = "direction"\n'
    )
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert sorted(each.name for each in here.iterdir()) == ["invsvc.toml", "link.toml"]
    assert from_environment({}, "staging") == STAGING | {
        "names": ParameterNames(limit="size", order="direction", page=None)
    }


def test_profile_that_is_new(here):
    """It gets everything, at the end of the file; the file's own choice stays."""
    write_profile({}, "other team", FOUND)

    assert (here / "invsvc.toml").read_text().startswith(FILE)
    assert from_environment({}, "other team") == {
        "base_url": "http://staging.example/v2", "allow_insecure_http": True,
        "names": ParameterNames(limit="size", order="direction"),
        "reconcile": ReconcilePolicy(journey_reader=None),
    }  # fmt: skip
    assert from_environment({}, None, has_credential=True) == {
        "base_url": "https://live.example/v2"
    }


def test_file_that_is_new(here):
    """The profile of a new file is the one that is used without a word."""
    (here / "invsvc.toml").unlink()
    write_profile({}, "staging", FOUND)

    assert from_environment({}, None, has_credential=True)["names"] == ParameterNames(
        limit="size", order="direction"
    )


@pytest.mark.parametrize("name", ["año", "live \U0001f600", 'with "quotes"\n', "a.b"])
def test_profile_of_any_name(name):
    """TOML has no surrogates, by which JSON may write a character."""
    assert tomllib.loads(with_profile("", name, FOUND)) == {
        "default_profile": name,
        "profiles": {name: FOUND},
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '[profiles]\nlive = { names = { limit = "a" } }',
            "'live': has a form that is not changed here",
        ),
        (
            '[profiles.live]\nnames.limit = "a"',
            "'live': has a form that is not changed here",
        ),
        (
            '[profiles.live.names]\nlimit = """a"""',
            "'live': has a form that is not changed here",
        ),
        (
            '[profiles.live.names]\n"limit" = "a"',
            "'live': has a form that is not changed here",
        ),
        ("[profiles", "cannot be read"),
        ("profiles = 3", "'live': must be a table"),
        ("[profiles]\nlive = 3", "'live': must be a table"),
        ('[profiles.live]\napi_key = "x"', "tokens belong in the environment"),
        ('token = "x"', "token not allowed"),
        (
            '[profiles.live]\nbase_url = "https://other.example"',
            "'live': is of https://other.example",
        ),
    ],
)
def test_file_that_is_not_changed(here, text, said):
    """What cannot be changed without a guess is said, with the file and the profile, and the file stays."""
    (here / "invsvc.toml").write_text(text)

    with pytest.raises(ConfigurationError, match=said):
        write_profile({}, "live", FOUND)
    assert (here / "invsvc.toml").read_text() == text
    assert [each.name for each in here.iterdir()] == ["invsvc.toml"]


@pytest.mark.parametrize("mode", [0o666, 0o646, 0o602])
def test_file_that_others_can_write(here, mode):
    """They could send the token elsewhere, so it is refused, also where somebody has named it."""
    (here / "invsvc.toml").chmod(mode)
    for environment in (
        {"INVSVC_PROFILE": "live"},
        {"INVSVC_CONFIG": str(here / "invsvc.toml")},
    ):
        with pytest.raises(
            ConfigurationError, match=r"others can write it.*chmod go-w"
        ):
            from_environment(environment, "live")


def test_file_that_a_group_can_write(here, monkeypatch):
    """It is refused, unless the group is that of its user alone."""
    file = here / "invsvc.toml"
    file.chmod(0o664)
    found = file.stat()
    shown = os.stat_result((*found[:5], found.st_uid + 1, *found[6:]))
    assert from_environment({}, "live")
    with monkeypatch.context() as patched:
        patched.setattr(Path, "stat", lambda _self, **_: shown)
        with pytest.raises(ConfigurationError, match="others can write it"):
            from_environment({}, "live")


def test_file_of_another_user(here, monkeypatch):
    """In the current directory it is refused; who names it by INVSVC_CONFIG trusts it."""
    found = (here / "invsvc.toml").stat()
    shown = os.stat_result((*found[:4], found.st_uid + 1, found.st_uid + 1, *found[6:]))
    monkeypatch.setattr(Path, "stat", lambda _self, **_: shown)
    with pytest.raises(ConfigurationError, match="belongs to another user"):
        from_environment({}, "live")
    assert from_environment({"INVSVC_CONFIG": "invsvc.toml"}, "live")


def test_default_profile_and_a_token_of_the_environment(here, monkeypatch):
    """A file that nobody has named does not choose where the token goes."""
    monkeypatch.setenv("INVSVC_API_KEY", "a.b.c")
    for name in ("INVSVC_BASE_URL", "INVSVC_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(
        ConfigurationError, match=r"INVSVC_PROFILE=live.*--profile live"
    ):
        Client.from_env()

    assert "live.example" in repr(Client.from_env(profile="live"))
    assert "live.example" in repr(Client.from_env(credential=ApiKey("a.b.c")))
    monkeypatch.setenv("INVSVC_PROFILE", "live")
    assert "live.example" in repr(Client.from_env())


def test_default_profile_without_an_address(here):
    """It sends a token nowhere else, and counts."""
    (here / "invsvc.toml").write_text(
        'default_profile = "own"\n\n[profiles.own]\nteam = "team_7"\n'
    )

    assert from_environment({}, None) == {"team": "team_7"}


def test_default_profile_of_another_address(here):
    """Its settings are those of another deployment, and do not count."""
    (here / "invsvc.toml").write_text(
        FILE.replace('default_profile = "live"', 'default_profile = "staging"')
    )

    assert from_environment({"INVSVC_BASE_URL": "https://x.example/v2"}, None) == {
        "base_url": "https://x.example/v2"
    }
    same = {"INVSVC_BASE_URL": "http://staging.example/v2/"}
    assert from_environment(same, None)["team"] == "team_7"
    named = {"INVSVC_BASE_URL": "https://x.example/v2", "INVSVC_PROFILE": "staging"}
    assert from_environment(named, None)["team"] == "team_7"


def test_settings_that_promise_less(here, caplog):
    """They are named, in a warning; what is as usual, or promises more, is told as a matter of course."""
    text = FILE + "settle_after_loss = 0.1\nabsence_within = 1e6\nclock_slack = 9.0\n"
    (here / "invsvc.toml").write_text(text)
    caplog.set_level("INFO")
    from_environment({}, "staging")
    from_environment({}, "live")

    [warned, told] = caplog.records
    assert warned.levelname == "WARNING"
    assert "settle_after_loss = 0.1, absence_within = 1e+06 may" in warned.getMessage()
    assert (
        told.levelname,
        "profile 'live', for https://live.example/v2" in told.getMessage(),
    ) == (
        "INFO",
        True,
    )
