"""The versions of engines that modules need."""

from __future__ import annotations

import re
from importlib import metadata

from invsvc_async.errors import ConfigurationError


def require(package: str, *least: int) -> None:
    """
    Check that *package* is installed, in the version *least* or a newer one.

    Raises:
        ConfigurationError: It is not.
    """
    wanted = ".".join(map(str, least))
    try:
        found = metadata.version(package)
    except metadata.PackageNotFoundError:
        raise ConfigurationError(
            f"{package}: is not installed. Run: pip install '{package}>={wanted}'."
        ) from None
    numbers = tuple(int(each) for each in re.findall(r"\d+", found)[: len(least)])
    if numbers < least:
        raise ConfigurationError(
            f"{package}: {found} does not fit. Run: pip install '{package}>={wanted}'."
        )
