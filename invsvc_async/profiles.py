"""
Read a client's settings from the environment and from ``invsvc.toml``; never a token, and nothing is sent.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from invsvc_async._errors import ConfigurationError
from invsvc_async.settings import ParameterNames, ReconcilePolicy

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FILE", "from_environment"]

FILE = "invsvc.toml"
_WORDS = {str: "a text", bool: "true or false", dict: "a table"}
_KEYS = {"base_url": str, "team": str, "allow_insecure_http": bool, "names": dict, "reconcile": dict}


def from_environment(
    environment: Mapping[str, str], profile: str | None
) -> dict[str, Any]:  # Any: Client's settings
    """
    Gather what ``Client`` takes, the environment before the file.

    Raises:
        ConfigurationError: There is no such profile, or the file holds what it must not.

    """
    found = _from_file(environment, profile or environment.get("INVSVC_PROFILE"))
    if environment.get("INVSVC_BASE_URL"):
        found["base_url"] = environment["INVSVC_BASE_URL"]
    if environment.get("INVSVC_TEAM"):
        found["team"] = environment["INVSVC_TEAM"]
    return found


def _from_file(environment: Mapping[str, str], profile: str | None) -> dict[str, Any]:
    path = Path(environment.get("INVSVC_CONFIG") or FILE)
    if not path.is_file():
        if profile:
            raise ConfigurationError(f"profile {profile!r} is asked for, and there is no file {path}")
        return {}
    try:
        whole = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError, OSError) as error:  # numbers without end and deep nesting among them
        raise ConfigurationError(f"{path} cannot be read: {error}") from None
    profiles = whole.get("profiles", {})
    name = profile or whole.get("default_profile")
    if name is None:
        return {}
    found = profiles.get(name) if isinstance(profiles, dict) and isinstance(name, str) else None
    if not isinstance(found, dict):
        known = ", ".join(profiles) if isinstance(profiles, dict) and profiles else "none"
        raise ConfigurationError(f"{path} has no profile {name!r}; it has {known}")
    return _checked(found, f"{path}, profile {name!r}")


def _checked(found: dict[str, Any], place: str) -> dict[str, Any]:
    """Take what a profile may hold, in words where it holds anything else: a token among others."""
    if strange := [key for key in found if key not in _KEYS]:
        raise ConfigurationError(
            f"{place}: {', '.join(strange)} cannot stand there; it takes {', '.join(_KEYS)} "
            "(tokens belong in the environment)"
        )
    for key, value in found.items():
        if not isinstance(value, _KEYS[key]):
            raise ConfigurationError(f"{place}: {key} must be {_WORDS[_KEYS[key]]}")
    settings = dict(found)
    for key, cls in (("names", ParameterNames), ("reconcile", ReconcilePolicy)):
        if key in settings:
            settings[key] = _made(cls, settings[key], f"{place}, {key}")
    return settings


def _made(cls: type[Any], values: dict[str, Any], place: str) -> Any:  # Any: one of two classes of settings
    known = {each.name for each in attrs.fields(cls)}
    unknown = sorted(set(values) - known)
    if unknown:
        raise ConfigurationError(f"{place}: unknown {', '.join(unknown)}")
    try:  # TOML has no null: an empty text switches a name off
        return cls(**{name: None if value == "" else value for name, value in values.items()})
    except ConfigurationError as error:
        raise ConfigurationError(f"{place}: {error}") from None
