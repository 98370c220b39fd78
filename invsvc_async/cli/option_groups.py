"""Commands that share options: each field of a class of options becomes an option of the command."""

from __future__ import annotations

import inspect
from functools import wraps
from typing import TYPE_CHECKING, Any

import attrs
import typer
from typer.core import TyperGroup

from invsvc_async.concurrency.event_loop import until_done

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Iterator

__all__ = ["expanded", "group_of"]

_LAST = ("json_", "profile", "team")  # in the help


def group_of(help_: str, cls: type[TyperGroup] = TyperGroup) -> typer.Typer:
    """Return a group of commands."""
    return typer.Typer(
        cls=cls, add_completion=False, rich_markup_mode="markdown", no_args_is_help=True, help=help_
    )


def expanded(
    command: Callable[..., Coroutine[Any, Any, None] | None], *, lacks: Collection[str] = (), **bound: object
) -> Callable[..., None]:
    """
    Return *command*, as typer takes it, with the fields of its parameters that are attrs classes.

    If it is a coroutine function, it is run to its end.

    It has none of the options that it *lacks*, and *bound* are arguments that are not given by the user.
    """
    signature = inspect.signature(command, eval_str=True)
    own = [each for each in signature.parameters.values() if each.name not in bound]
    groups = {each.name: each.annotation for each in own if _is_group(each)}

    @wraps(command)
    def call(**given: Any) -> None:  # Any: as the options
        for name, group in groups.items():
            names = {field.name for field in attrs.fields(group)} & {*given}
            given[name] = group(**{each: given.pop(each) for each in names})
        ended = command(**bound, **given)
        if ended is not None:
            until_done(ended)

    shown = [each for parameter in own for each in _options_of(parameter) if each.name not in lacks]
    shown.sort(key=lambda each: each.name in _LAST)
    call.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
    return call


def _is_group(parameter: inspect.Parameter) -> bool:
    return isinstance(parameter.annotation, type) and attrs.has(parameter.annotation)


def _options_of(parameter: inspect.Parameter) -> Iterator[inspect.Parameter]:
    """Yield the parameters for the fields of *parameter*, or itself."""
    if not _is_group(parameter):
        yield parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        return
    for field in attrs.fields(attrs.resolve_types(parameter.annotation)):
        default = inspect.Parameter.empty if field.default is attrs.NOTHING else field.default
        kind = inspect.Parameter.KEYWORD_ONLY
        yield inspect.Parameter(field.name, kind, default=default, annotation=field.type)
