"""
Client settings from the environment and from ``invsvc.toml``, and profiles that are written there.

Tokens are only ever read from the environment.  A file in the current directory may be a stranger's, as in a
downloaded checkout: it is refused if others can write it, it does not choose by itself where a token of the
environment is sent, and what is taken from it is said.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import stat
import sys
import tomllib
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from invsvc_async.errors import ConfigurationError
from invsvc_async.settings import (
    LESS_IS_SAFER,
    MORE_IS_SAFER,
    ParameterNames,
    ReconcilePolicy,
)
from invsvc_async.storage.flush import flush

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_log = logging.getLogger("invsvc_async.settings")

FILE = "invsvc.toml"
_TYPE_NAMES = {str: "a string", bool: "true or false", dict: "a table"}
_BARE = re.compile(r"[A-Za-z0-9_-]+")  # a key without quotes
_CLASSES: dict[str, type[Any]] = {"names": ParameterNames, "reconcile": ReconcilePolicy}
_KEYS = {
    "base_url": str,
    "team": str,
    "allow_insecure_http": bool,
    "names": dict,
    "reconcile": dict,
}


@attrs.frozen(kw_only=True)
class Profile:
    """
    A profile of the file at *path*, with its settings as arguments of ``Client``.

    ``is_chosen``: somebody named the profile, or the file, so that both are trusted.  ``weaker`` says which
    settings promise less than the defaults do.
    """

    path: Path
    name: str
    is_chosen: bool
    settings: dict[str, Any]  # Any: Client's settings
    weaker: str = ""

    def __str__(self) -> str:
        return f"{self.path}, profile {self.name!r}"


def settings_of(
    environment: Mapping[str, str],
    taken: Profile | None,
    *,
    has_credential: bool = False,
) -> dict[str, Any]:  # Any: Client's settings
    """
    Return the arguments of ``Client``; the environment takes precedence over the profile that is *taken*.

    *has_credential* is whether the program has a credential that is not from the environment.

    Raises:
        ConfigurationError: A token of the environment would go to an address that only the file has chosen.
    """
    found = {} if taken is None else dict(taken.settings)
    for name in ("base_url", "team", "journal"):
        if value := environment.get(f"INVSVC_{name.upper()}"):
            found[name] = value
    if taken is None:
        return found
    if not environment.get("INVSVC_BASE_URL") and not has_credential:
        _check_address(taken)
    level = logging.INFO
    if taken.weaker:
        level = logging.WARNING
    _log.log(level, "%s", words_of(taken))
    return found


def _check_address(taken: Profile) -> None:
    """Check that a token of the environment may be sent to the address, if any, of a profile."""
    if taken.is_chosen:
        return
    if "base_url" not in taken.settings:
        return
    address = taken.settings["base_url"]
    raise ConfigurationError(
        f"{taken}: the token of the environment would be sent to {address}, which nothing but "
        f"this file has chosen. Set INVSVC_PROFILE={taken.name} or pass the profile (--profile "
        f"{taken.name}), if you trust it."
    )


def profile_of(environment: Mapping[str, str], profile: str | None) -> Profile | None:
    """
    Return the profile of a client's settings, or ``None``.

    The default profile of a file in the current directory does not count if it is of another address than
    ``INVSVC_BASE_URL``: its settings are those of another deployment.

    Raises:
        ConfigurationError: The profile does not exist; or the file has an invalid setting, or others can
            write it.
    """
    taken = _from_file(environment, profile or environment.get("INVSVC_PROFILE"))
    if taken is None or taken.is_chosen:
        return taken
    asked = environment.get("INVSVC_BASE_URL", "").rstrip("/")
    own = str(taken.settings.get("base_url", asked)).rstrip("/")
    is_of_another = bool(asked) and own != asked
    if is_of_another:
        return None
    return taken


def words_of(taken: Profile) -> str:
    """Return what is taken from a file, in words."""
    address = taken.settings.get("base_url", "the base URL of the environment")
    warning = f". Warning: {taken.weaker}" if taken.weaker else ""
    return f"settings of {taken}, for {address}{warning}"


def weaker_settings(settings: Mapping[str, Any]) -> str:
    """Return in words which of *settings* promise less than the defaults do, or an empty text."""
    policy = settings.get("reconcile")
    if not isinstance(policy, ReconcilePolicy):
        return ""
    usual = ReconcilePolicy()
    less = [
        name for name in MORE_IS_SAFER if getattr(policy, name) < getattr(usual, name)
    ]
    more = [
        name for name in LESS_IS_SAFER if getattr(policy, name) > getattr(usual, name)
    ]
    weaker = [f"{name} = {getattr(policy, name):g}" for name in (*less, *more)]
    if policy.journey_reads_show_drafts:
        weaker.append("journey_reads_show_drafts = true")
    if not weaker:
        return ""
    return f"{', '.join(weaker)} may make a verdict false where the service is slower or different than that"


def _from_file(environment: Mapping[str, str], profile: str | None) -> Profile | None:
    elsewhere = environment.get("INVSVC_CONFIG")
    path = Path(elsewhere or FILE)
    if not path.is_file():
        _check_none_wanted(path, profile, is_named=bool(elsewhere))
        return None
    whole = _parsed(_trusted(path, is_named=bool(elsewhere)), str(path))
    name = profile or whole.get("default_profile")
    if name is None:
        return None
    profiles = whole.get("profiles")
    if not isinstance(profiles, dict):
        profiles = {}
    found = profiles.get(name) if isinstance(name, str) else None
    if not isinstance(name, str) or not isinstance(found, dict):
        known = ", ".join(profiles) or "none"
        raise ConfigurationError(
            f"{path}: has no profile {name!r}. Known profiles: {known}."
        )
    settings = _checked(found, f"{path}, profile {name!r}")
    is_chosen = profile is not None or bool(elsewhere)
    weaker = weaker_settings(settings)
    return Profile(
        path=path,
        name=name,
        is_chosen=is_chosen,
        settings=settings,
        weaker=weaker,
    )


def _check_none_wanted(
    path: Path,
    profile: str | None,
    *,
    is_named: bool,
) -> None:
    """Raise an error if the file at *path*, which does not exist, is needed."""
    if is_named:
        raise ConfigurationError(
            f"INVSVC_CONFIG: {path} is not a file. Correct the path, or unset it."
        )
    if profile:
        wrong = f"profile {profile!r} was requested, but {path} does not exist"
        raise ConfigurationError(f"{wrong}. Create it, or unset INVSVC_PROFILE.")


def _trusted(path: Path, *, is_named: bool) -> str:
    """Return the text of a file that nobody else can write. A file that *is_named* may be another user's."""
    if sys.platform != "win32":
        found = path.stat()
        others = stat.S_IWOTH
        # A group with the number of its user is that user's alone, where there are such groups.
        if found.st_gid != found.st_uid:
            others |= stat.S_IWGRP
        if found.st_mode & others:
            raise ConfigurationError(
                f"{path}: others can write it, so they could send your token elsewhere. "
                f"Correct that: chmod go-w {path}."
            )
        if not is_named and found.st_uid not in {os.geteuid(), 0}:
            raise ConfigurationError(
                f"{path}: belongs to another user. If you trust it, set INVSVC_CONFIG={path}."
            )
    return _read(path)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (ValueError, OSError) as error:
        raise ConfigurationError(f"{path}: cannot be read: {error}") from None


def _parsed(text: str, place: str) -> dict[str, Any]:
    try:
        whole = tomllib.loads(text)
    except (
        ValueError,
        RecursionError,
    ) as error:  # huge numbers and deep nesting, among others
        raise ConfigurationError(f"{place}: cannot be read: {error}") from None
    _check_keys(whole, ("default_profile", "profiles"), place)
    return whole


def _check_keys(
    found: Iterable[str],
    known: Iterable[str],
    place: str,
    hint: str = "",
) -> None:
    if unknown := [key for key in found if key not in known]:
        wrong = f"{place}: {', '.join(unknown)} not allowed. Use only {', '.join(known)}{hint}."
        raise ConfigurationError(wrong)


def _checked(found: dict[str, Any], place: str) -> dict[str, Any]:
    """Return the settings of a profile; reject all unknown keys, tokens among them."""
    _check_keys(found, _KEYS, place, "; tokens belong in the environment")
    for key, value in found.items():
        if not isinstance(value, _KEYS[key]):
            raise ConfigurationError(
                f"{place}: {key} must be {_TYPE_NAMES[_KEYS[key]]}. Correct it."
            )
    settings = dict(found)
    for key, cls in _CLASSES.items():
        if key in settings:
            settings[key] = _made(cls, settings[key], f"{place}, {key}")
    return settings


# Any: a class of settings, and one of its instances
def _made(cls: type[Any], values: dict[str, Any], place: str) -> Any:
    """Return the settings of a table at *place*. TOML has no null, so an empty text disables a name."""
    _check_keys(values, sorted(each.name for each in attrs.fields(cls)), place)
    given = dict(values)
    for name, each in values.items():
        if each == "":
            given[name] = None
    try:
        return cls(**given)
    except ConfigurationError as error:
        raise ConfigurationError(f"{place}: {error}") from None


def write_profile(
    environment: Mapping[str, str],
    name: str,
    settings: dict[str, Any],
) -> Path:
    """
    Store *settings* in profile *name* of the file, and return its path. The file is replaced at once.

    Raises:
        ConfigurationError: As :func:`with_profile`.
        OSError: The file cannot be written.
    """
    # of a link, what it points to
    path = Path(environment.get("INVSVC_CONFIG") or FILE).resolve()
    text = ""
    if path.exists():
        text = _read(path)
    text = with_profile(text, name, settings, str(path))
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    with unfinished.open("w", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        flush(file.fileno())
    if path.exists():
        shutil.copymode(path, unfinished)
    unfinished.replace(path)
    return path


def with_profile(
    text: str,
    name: str,
    settings: dict[str, Any],
    place: str = FILE,
) -> str:
    """
    Return *text*, of a file at *place*, with *settings* in profile *name*. All else stays, comments too.

    A profile that exists gets only the tables of *settings*: ``names`` and ``reconcile``.

    Raises:
        ConfigurationError: The file is invalid; or its profile is of another base URL; or it has a form that
            this function does not change, such as an inline table.
    """
    whole = _parsed(text, place)
    where = f"{place}, profile {name!r}"
    profiles = whole.setdefault("profiles", {})
    if not isinstance(profiles, dict) or not isinstance(profiles.get(name, {}), dict):
        raise ConfigurationError(f"{where}: must be a table. Correct it.")
    parts = _tables(settings, with_values=name not in profiles)
    url = _checked(profiles.get(name, {}), where).get("base_url", settings["base_url"])
    if url.rstrip("/") != settings["base_url"].rstrip("/"):
        raise ConfigurationError(f"{where}: is of {url}. Choose another name.")
    if not text:
        text = f"default_profile = {_quoted(name)}"
        whole["default_profile"] = name
    for part, values in parts.items():
        if not values:
            continue
        path = ["profiles", name]
        table = profiles.setdefault(name, {})
        if part:
            path.append(part)
            table = table.setdefault(part, {})
        table.update(values)
        text = _with_values(text, path, values)
    if _loaded(text) == whole:
        return text
    raise ConfigurationError(
        f"{where}: has a form that is not changed here, such as an inline table. Set yourself: {settings}."
    )


def _tables(
    settings: dict[str, Any], *, with_values: bool
) -> dict[str, dict[str, Any]]:
    """Return the tables in *settings* by name; *with_values*, the values beside them come first, under ""."""
    tables: dict[str, dict[str, Any]] = {}
    values: dict[str, Any] = {}
    for key, each in settings.items():
        if isinstance(each, dict):
            tables[key] = each
        else:
            values[key] = each
    if with_values:
        return {"": values, **tables}
    return tables


def _with_values(
    text: str,
    path: list[str],
    values: dict[str, Any],
) -> str:
    """Return *text* with *values* in the table *path*, if it is in the usual form; the caller checks that."""
    lines = text.rstrip("\n").split("\n")
    heads = [at for at, line in enumerate(lines) if line.lstrip().startswith("[")]
    header: dict[str, Any] = reduce(lambda table, key: {key: table}, reversed(path), {})
    begin = next((at for at in heads if _loaded(lines[at]) == header), None)
    if begin is None:
        begin = len(lines) + 1
        lines += ["", f"[{'.'.join(map(_key, path))}]"]
    end = next((at for at in heads if at > begin), len(lines))
    lines[begin:end] = _changed_table("\n".join(lines[begin:end]), values)
    return "\n".join(lines) + "\n"


def _changed_table(table: str, values: dict[str, Any]) -> list[str]:
    """Return the lines of *table* with *values*: in place of the old ones, or below its head."""
    new = list[str]()
    for key, value in values.items():
        old = rf"""(?m)^([ \t]*{key}[ \t]*=[ \t]*)(?:"(?:[^"\\]|\\.)*"|'[^']*')"""
        table, found = re.subn(
            old, r"\g<1>" + _quoted(value).replace("\\", r"\\"), table, count=1
        )
        if not found:
            new.append(f"{key} = {_quoted(value)}")
    head, *others = table.split("\n")
    return [head, *new, *others]


def _loaded(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except ValueError:
        return None


def _key(name: str) -> str:
    if _BARE.fullmatch(name):
        return name
    return _quoted(name)


def _quoted(value: object) -> str:
    # TOML escapes like JSON, but has no surrogates
    return json.dumps(value, ensure_ascii=False)
