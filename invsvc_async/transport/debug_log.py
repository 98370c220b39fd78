"""``INVSVC_LOG``: logging that the environment switches on. Logs no body and no credential."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from invsvc_async.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from invsvc_async.transport.client_core import AttemptReport

VARIABLE = "INVSVC_LOG"
_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

log: logging.Logger = logging.getLogger("invsvc_async.transport")


def set_up_logging(environment: Mapping[str, str]) -> bool:
    """
    Set the level that ``INVSVC_LOG`` names, and return whether requests are to be logged.

    If the application has configured logging, its handlers get the messages; otherwise, they go to stderr.

    Raises:
        ConfigurationError: The level does not exist.
    """
    name = environment.get(VARIABLE, "")
    if not name:
        return False
    level = _LEVELS.get(name.strip().lower())
    if level is None:
        raise ConfigurationError(
            f"{VARIABLE}: must be one of {', '.join(_LEVELS)}, not {name[:40]!a}."
        )
    logger = logging.getLogger("invsvc_async")
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(_FORMAT))
        logger.addHandler(handler)
    logger.setLevel(level)
    return level == logging.DEBUG


def logged(
    hook: Callable[[AttemptReport], None] | None,
) -> Callable[[AttemptReport], None]:
    """Return a hook that logs each request, and calls *hook*."""

    def on_attempt(report: AttemptReport) -> None:
        status = "" if report.status is None else f" HTTP {report.status}"
        log.debug(
            "%s (%s): %s%s after %.3f s",
            report.operation,
            report.method,
            report.end,
            status,
            report.seconds,
        )
        if hook is not None:
            hook(report)

    return on_attempt
