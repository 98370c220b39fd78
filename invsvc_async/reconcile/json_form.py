"""
The JSON form of intents, histories and errors, readable by later versions.

It contains no tokens or secrets; that of an error has no body and no headers of an answer.
"""

from __future__ import annotations

import re
from decimal import Decimal
from functools import cache
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from invsvc_async import settings
from invsvc_async.api.operations import BY_NAME
from invsvc_async.api.parameters import is_below_base, is_segment
from invsvc_async.codec import envelope
from invsvc_async.codec.exact_json import loads_text
from invsvc_async.errors import (
    ConfigurationError,
    DeadlineExceededError,
    InvalidRequestError,
    InvsvcError,
    ServiceError,
    TransportError,
    service_error_class,
    without_secrets,
)
from invsvc_async.reconcile import history
from invsvc_async.reconcile.compare import is_time
from invsvc_async.reconcile.intent import Intent
from invsvc_async.reconcile.kinds import kind_of_write

if TYPE_CHECKING:
    from collections.abc import Callable

    from cattrs import Converter

    from invsvc_async.api.operations import Operation
    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.reconcile.history import Event, Finding
    from invsvc_async.reconcile.kinds import WriteKind

T = TypeVar("T")

SCHEMA = 1
LONGEST = 64 * 2**20  # characters of an intent's text
_EVENT: Any = history.Event  # Any: a union of types
_LONGEST_PAUSE = 10**9  # seconds of a Retry-After
_WRITING = ("DELETE", "PATCH", "POST", "PUT")  # methods of `client.write`
_ERROR_FIELDS = (
    "operation",
    "status",
    "code",
    "details",
    "own_envelope",
    "retry_after",
)
_DESCRIBED = (
    ConfigurationError,
    DeadlineExceededError,
    TransportError,
    *TransportError.__subclasses__(),
)
# Errors other than the service's that a text describes.
_ERRORS: dict[str, type[InvsvcError]] = {each.__name__: each for each in _DESCRIBED}


def intent_to_json(intent: Intent) -> str:
    """Encode *intent* as JSON."""
    return envelope.dumps(
        {"schema": SCHEMA, **_converter().unstructure(intent)}
    ).decode()


def intent_from_json(text: str | bytes) -> Intent:
    """Decode an intent.  Raise InvalidRequestError if the text is not valid."""
    plain = parsed(text, "an intent")
    plain.pop("schema")
    intent = structured(plain, Intent, "an intent")
    problem = misfit(intent)
    if problem:
        raise InvalidRequestError(f"not an intent of this package: {problem}")
    return intent


def parsed(text: str | bytes, what: str) -> dict[str, Wire]:
    """Decode the JSON object in *text*, and check its version."""
    if not isinstance(text, (str, bytes)):
        raise InvalidRequestError(
            f"not {what}: must be text or bytes, not {type(text).__name__}"
        )
    if len(text) > LONGEST:
        raise InvalidRequestError(
            f"not {what}: the text is longer than {LONGEST} characters"
        )
    try:
        plain = loads_text(text)
    except (InvsvcError, UnicodeEncodeError) as error:
        raise InvalidRequestError(
            f"not {what}: the text is damaged or truncated"
        ) from error
    return check_version(plain, what)


def check_version(plain: Wire, what: str) -> dict[str, Wire]:
    """Return *plain* if it is an object of this schema version; otherwise raise ``InvalidRequestError``."""
    if not isinstance(plain, dict) or "schema" not in plain:
        raise InvalidRequestError(f"not {what}: the text has no schema version")
    version = plain["schema"]
    if version != SCHEMA or isinstance(version, bool):
        raise InvalidRequestError(
            f"{what} of schema version {version!r}; this package reads version {SCHEMA}. "
            "Use the version that wrote it, or a newer one"
        )
    return plain


def unstructured(value: object) -> Wire:
    """Convert a value of this folder to plain data."""
    return _converter().unstructure(value)


def structured(plain: Wire, cls: type[T], what: str) -> T:
    """Convert plain data to *cls*; raise ``InvalidRequestError``, which names *what*, for invalid data."""
    from cattrs.errors import BaseValidationError, ForbiddenExtraKeysError
    from cattrs.v import transform_error

    try:
        return _converter().structure(plain, cls)
    except (BaseValidationError, ForbiddenExtraKeysError) as error:
        raise InvalidRequestError(
            [f"not {what}: {each}" for each in transform_error(error)][:20]
        ) from error
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise InvalidRequestError(f"not {what}: {error}") from error


def misfit(intent: Intent) -> str | None:
    """Return why a well-formed intent cannot be settled; ``None`` if it can."""
    operation = BY_NAME.get(intent.operation)
    if operation is None or operation.kind != "write":
        return f"there is no write called {intent.operation!r}"
    return (
        _misfit_of_place(intent, operation)
        or _misfit_of_content(intent, kind_of_write(operation))
        or _misfit_of_past(intent)
    )


def _misfit_of_place(intent: Intent, operation: Operation) -> str | None:
    """Return why an intent cannot have its path and query: below the base URL, and in its team."""
    names = {"method", "path"}
    if operation.listed:
        places = [each for each in operation.parameters if each.where == "path"]
        names = {each.wire or each.name for each in places}
    if set(intent.path) != names:
        return f"its path has {sorted(intent.path)}, not {sorted(names)}"
    if "team" in intent.query or not _is_path_of(intent.path, operation):
        return "its path or query is none that a write can have"
    return None


def _is_path_of(path: dict[str, str], operation: Operation) -> bool:
    if operation.listed:
        return all(map(is_segment, path.values()))
    return path["method"] in _WRITING and is_below_base(path["path"])


def _misfit_of_content(intent: Intent, kind: WriteKind) -> str | None:
    """Return why an intent cannot have its body and headers."""
    needs_object = kind.shown_by is not None and not kind.deletes
    if needs_object and not isinstance(intent.body, dict):
        return "its body is not an object"
    try:
        settings.checked_headers(intent.headers)
    except ConfigurationError as error:
        return f"its {error}"
    if kind.creates and kind.alike(intent.body) is None:
        return f"its body has no {kind.found_by}"
    return None


def _misfit_of_past(intent: Intent) -> str | None:
    """Return why an intent cannot have its sends and its baseline."""
    if any(sent.attempt_timeout < 0 for sent in intent.sent):
        return "one of its sends had less than no time"
    if not isinstance(intent.baseline, (dict, type(None))):
        return "its baseline is not an object"
    return None


def event_to_wire(event: Event) -> Wire:
    """Convert one event of a history to plain data."""
    return without_secrets(_converter().unstructure(event, _EVENT))


def event_from_wire(plain: Wire) -> Event:
    """Convert plain data to an event."""
    event: Event = structured(plain, _EVENT, "a story")
    try:
        envelope.utc(getattr(event, "stamp", None) or 0)
    except OverflowError:
        raise InvalidRequestError(
            "not a story: a stamp is outside the range of times"
        ) from None
    return event


# --- errors


def plain_error(error: InvsvcError) -> dict[str, Wire]:
    """Return the class's name as ``type``, the error's ``text``, and what it has of the answer."""
    fields = {name: getattr(error, name, None) for name in _ERROR_FIELDS}
    fields["details"] = without_secrets(fields["details"])
    said = error.message if isinstance(error, ServiceError) else None
    found = {
        "type": type(error).__name__,
        "text": str(error),
        "message": said,
        **fields,
    }
    return {name: value for name, value in found.items() if value is not None}


def error_of(plain: Wire) -> InvsvcError | None:
    """Return the error with the plain form *plain*; ``None`` if *plain* is no error."""
    if not isinstance(plain, dict):
        return None
    status = plain.get("status")
    text = str(plain.get("text") or "")
    kind = _ERRORS.get(str(plain.get("type")))
    if kind is not None and issubclass(kind, TransportError):
        return kind(text, operation=plain.get("operation"), status=status)
    if kind is not None:
        return kind(text)
    if type(status) is not int:
        return InvsvcError(text)
    return _service_error_of(plain, status)


def _service_error_of(plain: dict[str, Wire], status: int) -> ServiceError:
    """Return the error of an answer with *status*.  What is not of its type in *plain* is left out."""
    details = plain.get("details")
    if isinstance(details, list) and all(isinstance(each, str) for each in details):
        details = tuple(details)
    return service_error_class(status)(
        status=status,
        code=_text_or_none(plain.get("code")),
        message=_text_or_none(plain.get("message")),
        details=details,
        operation=plain.get("operation"),
        retry_after=_pause_or_none(plain.get("retry_after")),
        own_envelope=plain.get("own_envelope") is True,
    )


def _pause_or_none(value: Wire) -> float | None:
    """Return a Retry-After in seconds; ``None`` for what can be none."""
    if not is_time(value) or not 0 <= value <= _LONGEST_PAUSE:
        return None
    return float(value)


def _text_or_none(value: Wire) -> str | None:
    if isinstance(value, str):
        return value
    return None


# --- conversion


@cache
def _converter() -> Converter:
    """
    Return the converter.  It is strict about types, because its input may be damaged.

    cattrs refuses unknown keys (``forbid_extra_keys``) and generates a function for each class, with hooks of
    single fields (``override``).  Its own hooks of texts and numbers would convert: ``int("3")`` is 3.
    Findings are no tagged union of its strategies, as events are: their values may be models.
    """
    from cattrs import Converter
    from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override
    from cattrs.strategies import configure_tagged_union

    attrs.resolve_types(settings.ReconcilePolicy, localns={"AnyReader": str})
    converter = Converter(
        forbid_extra_keys=True, unstruct_collection_overrides={frozenset: sorted}
    )
    for kind in (str, bool, int):
        converter.register_structure_hook(kind, _exactly)
    converter.register_structure_hook(float, _number)
    for enum in (history.End, history.Verdict):
        converter.register_structure_hook(enum, lambda value, of: of(value))
    special: dict[type[Any], dict[str, Any]] = {
        settings.ReconcilePolicy: {
            "journey_reader": override(
                struct_hook=_reader, unstruct_hook=_reader_to_wire
            )
        },
        settings.Timeouts: {},
        # Left out where there is none: earlier versions do not know it.
        history.Resumed: {"safety": override(omit_if_default=True)},
        history.Reading: {
            "finding": override(struct_hook=_finding, unstruct_hook=_finding_to_wire)
        },
    }
    for cls, fields in special.items():
        structure: Any = make_dict_structure_fn(
            cls, converter, _cattrs_forbid_extra_keys=True, **fields
        )
        unstructure: Any = make_dict_unstructure_fn(cls, converter, **fields)
        # What is of the class already stays: journals keep what many intents share.
        converter.register_structure_hook(cls, _unless_it_is(structure))
        converter.register_unstructure_hook(cls, unstructure)
    configure_tagged_union(_EVENT, converter, _tag, "event")
    return converter


def _tag(cls: type[object]) -> str:
    """Return what an event or finding is called in plain data, such as ``cannot tell``."""
    return re.sub("(?<=[a-z])(?=[A-Z])", " ", cls.__name__).lower()


def _exactly(value: object, kind: type[T]) -> T:
    if type(value) is not kind:
        raise TypeError(f"expected {kind.__name__}")
    return value


def _number(value: Any, _: object) -> float:  # Any: a Decimal or an int of the parser
    if not isinstance(value, (int, Decimal)) or isinstance(value, bool):
        raise TypeError("expected a number")
    number = float(value)
    if not isfinite(number):
        raise TypeError("expected a number that is not so large")
    return number


def _unless_it_is(make: Callable[[object, object], object]) -> Callable[..., Any]:
    """Return *make*, changed so that a value of the right class stays as it is."""

    def made(value: object, of: object) -> object:
        if type(value) is of:
            return value
        return make(value, of)

    return made


def _reader(value: object, _: object) -> str | None:
    if value is None:
        return None
    if value not in ("journeys.get", settings.JOURNEY_READER):
        raise TypeError("expected the name of a reader")
    return str(value)


def _reader_to_wire(reader: object) -> object:
    """Return the name of the reader of a policy."""
    if callable(reader):
        return settings.JOURNEY_READER
    return reader


def _finding_to_wire(finding: Finding | None) -> Wire:
    """Convert a reader's finding to plain data.  Its value may be a model."""
    if finding is None:
        return None
    fields = attrs.asdict(finding, recurse=False)
    return {
        "finding": _tag(type(finding)),
        **{name: _plain(value) for name, value in fields.items()},
    }


def _plain(value: Any) -> Wire:  # Any: whatever a reader of the caller's found
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if value is None or isinstance(value, (str, bool, int, Decimal, dict)):
        return value
    from invsvc_async.codec import unstructure

    try:
        return unstructure(value)
    except (TypeError, InvsvcError):
        return repr(value)


def _finding(plain: Wire, _: object) -> Finding | None:
    if plain is None:
        return None
    cls: Any = next(cls for cls in history.FINDINGS if _tag(cls) == plain["finding"])
    fields = {name: value for name, value in plain.items() if name != "finding"}
    found: Finding = cls(**{name: _frozen(value) for name, value in fields.items()})
    return found


def _frozen(value: Wire) -> Wire:
    """Return the value of a finding's field: in plain data, a tuple is a list."""
    if isinstance(value, list):
        return tuple(value)
    return value
