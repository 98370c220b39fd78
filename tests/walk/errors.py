"""Errors that a program may meet because of what happened to it."""

from invsvc_async.errors import ConfigurationError, InvsvcError, JournalError

SILENT_ERRORS: tuple[type[InvsvcError], ...] = (ConfigurationError, JournalError)
