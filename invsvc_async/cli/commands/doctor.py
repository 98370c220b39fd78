"""``invsvc doctor``: check what a deployment honours, and print matching settings."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import attrs
import typer

from invsvc_async.cli.options import Calling, is_insecure, option
from invsvc_async.cli.output import Exit, as_json, emitted, note, table

if TYPE_CHECKING:
    from invsvc_async.doctor import Checkup
    from invsvc_async.transport.client_core import ClientOptions

_JOURNEY = "An existing journey, to check whether it can be read."
_WRITE = "Store the settings in this profile of invsvc.toml."
_MARKS = {True: "ok", False: "!!", None: "?"}


async def doctor(
    *,
    journey: Annotated[str | None, option(_JOURNEY, "ID")] = None,
    write: Annotated[str | None, option(_WRITE, "PROFILE")] = None,
    calling: Calling,
) -> int:
    """
    Check what the specification leaves open in a deployment, with reads only, and print matching settings,
    or store them: `invsvc doctor --write live`.

    Exits with 1 if the deployment does not answer, or rejects this credential.
    """
    from invsvc_async.cli.progress import waiting_for_read
    from invsvc_async.client import options_of
    from invsvc_async.doctor import examine
    from invsvc_async.profiles import write_profile

    async with calling.client() as client:
        with waiting_for_read(client, "the next check"):
            found = await examine(client, journey=journey, on_check=_tell_of_check)
        settings = _settings(found, options_of(client), calling.team)
    if not emitted({**attrs.asdict(found), "usable": found.usable}):
        _print_answers(found)
        if found.usable:
            _print_settings(settings)
    if write is not None and found.usable:
        path = write_profile(os.environ, write, settings)
        typer.echo(f"{path}: profile {write!r} has these settings.", err=True)
    if found.usable:
        return Exit.DONE
    return Exit.FAILED


def _tell_of_check(words: str) -> None:
    """Print a line as a check begins: on a faulty service, each can take a minute."""
    if not as_json.get():
        note(f"checking: {words}")


def _print_answers(found: Checkup) -> None:
    rows = [(each.question, _MARKS[each.good], each.answer) for each in found.findings]
    for each in found.names:
        good = bool(each.name) if each.certain else None
        words = each.why
        if each.name:
            words = f"{each.name} ({each.why})"
        rows.append((f"parameter: {each.role}", _MARKS[good], words))
    table(("question", "", "answer"), rows)


def _print_settings(settings: dict[str, Any]) -> None:  # Any: as above
    """Print *settings* as Python, and as a profile."""
    from invsvc_async.profiles import with_profile

    for name, part in (("ParameterNames", "names"), ("ReconcilePolicy", "reconcile")):
        values = (f"{key}={value or None!r}" for key, value in settings[part].items())
        typer.echo(f"{name}({', '.join(values)})")
    typer.echo(f"\n# invsvc.toml\n{with_profile('', 'default', settings)}", nl=False)


# Any: as above
def _settings(
    found: Checkup,
    used: ClientOptions,
    team: str | None,
) -> dict[str, Any]:
    """Return a profile, with the parameters whose names differ from those assumed or used."""
    base_url = used.core.base_url
    reconcile: dict[str, str] = {}
    if found.journey_reads is False:
        reconcile["journey_reader"] = ""
    settings: dict[str, Any] = {"base_url": base_url}
    if team:
        settings["team"] = team
    if is_insecure(base_url):
        settings["allow_insecure_http"] = True
    return settings | {"names": _other_names(found, used), "reconcile": reconcile}


def _other_names(found: Checkup, used: ClientOptions) -> dict[str, str]:
    """Return the certain names of parameters, by role, that are neither assumed nor used."""
    from invsvc_async.settings import ParameterNames

    others = (ParameterNames(), used.names)
    names: dict[str, str] = {}
    for each in found.names:
        if not each.name:
            continue
        if not each.certain:
            continue
        if {getattr(other, each.role) for other in others} != {each.name}:
            names[each.role] = each.name
    return names
