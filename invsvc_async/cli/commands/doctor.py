"""``invsvc doctor``: check what a deployment honours, and print matching settings."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import attrs
import typer

from invsvc_async.cli.options import Profile, Team, client_of, is_insecure
from invsvc_async.concurrency.event_loop import until_done

if TYPE_CHECKING:
    from invsvc_async.doctor import Checkup

__all__ = ["command"]

_MARKS = {True: "ok", False: "!!", None: "?"}


def command(
    *,
    journey: Annotated[
        str | None, typer.Option(metavar="ID", help="An existing journey, to check whether it can be read.")
    ] = None,
    toml: Annotated[bool, typer.Option("--toml", help="Print only an invsvc.toml.")] = False,
    name: Annotated[str, typer.Option(help="Name of the profile in it.", metavar="NAME")] = "default",
    json_: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    profile: Profile = None,
    team: Team = None,
) -> None:
    """
    Check what the specification leaves open in a deployment, with reads only, and print matching settings:
    `invsvc doctor --toml`.

    Exits with 1 if the deployment does not answer, or rejects this credential.
    """
    found, base_url = until_done(_examined(profile, team, journey))
    if json_:
        from invsvc_async.cli.output import emit_json

        emit_json({**attrs.asdict(found), "usable": found.usable})
    elif toml and found.usable:
        typer.echo(_toml(found, base_url, team, name), nl=False)
    elif toml:  # stdout is redirected to a file: print no settings
        from invsvc_async.cli.output import fail

        fail("; ".join(f"{each.question}: {each.answer}" for each in found.findings if each.good is False))
    else:
        _print_checkup(found, _toml(found, base_url, team, name))
    raise typer.Exit(0 if found.usable else 1)


async def _examined(profile: str | None, team: str | None, journey: str | None) -> tuple[Checkup, str]:
    from invsvc_async.cli.waiting import waiting_for_read
    from invsvc_async.client import options_of
    from invsvc_async.doctor import examine

    async with client_of(profile, team) as client:
        with waiting_for_read(client, "the next check"):
            found = await examine(client, journey=journey)
        return found, options_of(client).session.base_url


def _print_checkup(found: Checkup, toml: str) -> None:
    from invsvc_async.cli.output import table

    rows = [(each.question, _MARKS[each.good], each.answer) for each in found.findings]
    rows += [
        (f"parameter: {each.role}", _MARKS[bool(each.name) if each.certain else None],
         f"{each.name} ({each.why})" if each.name else each.why)
        for each in found.names
    ]  # fmt: skip
    table(("question", "", "answer"), rows)
    if found.usable:
        typer.echo(f"\nParameterNames({_arguments(_names(found))})")
        typer.echo(f"ReconcilePolicy({_arguments(_policy(found))})")
        typer.echo(f"\n# invsvc.toml\n{toml}", nl=False)


def _names(found: Checkup) -> dict[str, str]:
    """Return the names that were seen to work and differ from the assumed ones."""
    from invsvc_async.settings import ParameterNames

    assumed = ParameterNames()
    known = {each.role: each.name for each in found.names if each.name and each.certain}
    return {role: name for role, name in known.items() if name != getattr(assumed, role)}


def _policy(found: Checkup) -> dict[str, str | None]:
    return {"journey_reader": None} if found.journey_reads is False else {}


def _arguments(settings: dict[str, Any]) -> str:  # Any: strings and None
    return ", ".join(f"{name}={value!r}" for name, value in settings.items())


def _toml(found: Checkup, base_url: str, team: str | None, name: str) -> str:
    """Return a profile as TOML; an empty string disables a name.  The file never contains a token."""
    quoted = partial(json.dumps, ensure_ascii=False)  # TOML escapes like JSON, but has no surrogates
    lines = [
        f"default_profile = {quoted(name)}",
        "",
        f"[profiles.{quoted(name)}]",
        f"base_url = {quoted(base_url)}",
    ]
    lines += [f"team = {quoted(team)}"] if team else []
    lines += ["allow_insecure_http = true"] if is_insecure(base_url) else []
    for part, settings in (("names", _names(found)), ("reconcile", _policy(found))):
        if settings:
            lines += ["", f"[profiles.{quoted(name)}.{part}]"]
            lines += [f"{key} = {quoted(value or '')}" for key, value in settings.items()]
    lines += [
        f'# names.{each.role}: {each.why}. Set its name, or "" to refuse its use'
        for each in found.names
        if each.certain and each.name is None
    ]
    return "\n".join(lines) + "\n"
