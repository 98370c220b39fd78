"""
Client settings from the environment and from ``invsvc.toml``.

Tokens are only ever read from the environment.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from invsvc_async.errors import ConfigurationError
from invsvc_async.settings import ParameterNames, ReconcilePolicy

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FILE", "from_environment"]

FILE = "invsvc.toml"
_TOP = ("default_profile", "profiles")
_TYPE_NAMES = {str: "a string", bool: "true or false", dict: "a table"}
_KEYS = {"base_url": str, "team": str, "allow_insecure_http": bool, "names": dict, "reconcile": dict}


def from_environment(
    environment: Mapping[str, str], profile: str | None
) -> dict[str, Any]:  # Any: Client's settings
    """
    Return the arguments of ``Client``; the environment takes precedence over the file.

    Raises:
        ConfigurationError: The profile does not exist, or the file has an invalid setting.

    """
    found = _from_file(environment, profile or environment.get("INVSVC_PROFILE"))
    if environment.get("INVSVC_BASE_URL"):
        found["base_url"] = environment["INVSVC_BASE_URL"]
    for name in ("team", "journal"):
        if environment.get(f"INVSVC_{name.upper()}"):
            found[name] = environment[f"INVSVC_{name.upper()}"]
    return found


def _from_file(environment: Mapping[str, str], profile: str | None) -> dict[str, Any]:
    elsewhere = environment.get("INVSVC_CONFIG")
    path = Path(elsewhere or FILE)
    if not path.is_file():
        if elsewhere:
            raise ConfigurationError(f"INVSVC_CONFIG: {path} is not a file. Correct the path, or unset it.")
        if profile:
            raise ConfigurationError(
                f"profile {profile!r} was requested, but {path} does not exist. "
                "Create it, or unset INVSVC_PROFILE."
            )
        return {}
    try:
        whole = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError, OSError) as error:  # huge numbers and deep nesting, among others
        raise ConfigurationError(f"{path}: cannot be read: {error}") from None
    if unknown := [key for key in whole if key not in _TOP]:
        raise ConfigurationError(f"{path}: {', '.join(unknown)} not allowed. Use only {' and '.join(_TOP)}.")
    profiles = whole.get("profiles", {})
    name = profile or whole.get("default_profile")
    if name is None:
        return {}
    found = profiles.get(name) if isinstance(profiles, dict) and isinstance(name, str) else None
    if not isinstance(found, dict):
        known = ", ".join(profiles) if isinstance(profiles, dict) and profiles else "none"
        raise ConfigurationError(f"{path}: has no profile {name!r}. Known profiles: {known}.")
    return _checked(found, f"{path}, profile {name!r}")


def _checked(found: dict[str, Any], place: str) -> dict[str, Any]:
    """Return the settings of a profile; reject all unknown keys, tokens among them."""
    if unknown := [key for key in found if key not in _KEYS]:
        raise ConfigurationError(
            f"{place}: {', '.join(unknown)} not allowed. Use only {', '.join(_KEYS)}; "
            "tokens belong in the environment."
        )
    for key, value in found.items():
        if not isinstance(value, _KEYS[key]):
            raise ConfigurationError(f"{place}: {key} must be {_TYPE_NAMES[_KEYS[key]]}. Correct it.")
    settings = dict(found)
    for key, cls in (("names", ParameterNames), ("reconcile", ReconcilePolicy)):
        if key in settings:
            settings[key] = _build(cls, settings[key], f"{place}, {key}")
    return settings


def _build(cls: type[Any], values: dict[str, Any], place: str) -> Any:  # Any: one of two settings classes
    known = {each.name for each in attrs.fields(cls)}
    unknown = sorted(set(values) - known)
    if unknown:
        raise ConfigurationError(
            f"{place}: unknown setting {', '.join(unknown)}. Use only {', '.join(sorted(known))}."
        )
    try:  # TOML has no null, so an empty string disables a name
        return cls(**{name: None if value == "" else value for name, value in values.items()})
    except ConfigurationError as error:
        raise ConfigurationError(f"{place}: {error}") from None
