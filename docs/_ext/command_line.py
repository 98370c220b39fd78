"""Sphinx directive for the reference of the command line, generated from the commands."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import typer.main
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from invsvc_async.cli.app import app as command_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx

CODE = re.compile(r"(`[^`]+`|(?<!\S)--[a-z-]+)")


def commands() -> Iterator[tuple[str, Any]]:
    """Yield each command with its full name; groups are replaced by their commands."""
    group = typer.main.get_command(command_line)
    context = group.make_context("invsvc", [], resilient_parsing=True)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if not hasattr(command, "list_commands"):
            yield name, command
            continue
        for inner in command.list_commands(context):
            yield f"{name} {inner}", command.get_command(context, inner)


def options_of(command: Any) -> Iterator[tuple[str, str]]:
    """Yield the names and the description of each parameter of *command*."""
    for each in command.params:
        if each.name == "help" or getattr(each, "hidden", False):
            continue
        names = (
            ", ".join((*each.opts, *each.secondary_opts))
            if each.param_type_name == "option"
            else each.metavar or each.name.upper()
        )
        yield names, " ".join(_description(each))


def _description(each: Any) -> Iterator[str]:
    if getattr(each, "help", None):
        yield each.help
    if isinstance(each.default, (int, float, str)) and not isinstance(
        each.default, bool
    ):
        yield f"Default: `{each.default}`."
    if each.envvar:
        yield f"Or from `{each.envvar}`."


def paragraph_of(words: str) -> nodes.paragraph:
    """Return a paragraph in which options and text in backticks are code."""
    parts = CODE.split(" ".join(words.split()))
    kinds = (nodes.Text if number % 2 == 0 else _code for number in range(len(parts)))
    return nodes.paragraph(
        "",
        "",
        *(
            kind(part.strip("`"))
            for kind, part in zip(kinds, parts, strict=True)
            if part
        ),
    )


def _code(text: str) -> nodes.literal:
    return nodes.literal("", text)


def _section(name: str, command: Any) -> nodes.section:
    section = nodes.section(ids=[f"invsvc-{name.replace(' ', '-')}"])
    section += nodes.title("", f"invsvc {name}")
    for paragraph in (command.help or "").split("\n\n"):
        section += paragraph_of(paragraph)
    listed = nodes.definition_list()
    for term, words in options_of(command):
        item = nodes.definition_list_item(
            "", nodes.term("", "", nodes.literal("", term))
        )
        item += nodes.definition("", paragraph_of(words))
        listed += item
    section += listed
    return section


class CommandLine(SphinxDirective):
    """``command-line``: every command with its options."""

    def run(self) -> list[nodes.Node]:
        """Build a section a command."""
        return [_section(name, command) for name, command in commands()]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("command-line", CommandLine)
    return {"parallel_read_safe": True}
