"""The versions of engines that modules need."""

from __future__ import annotations

import re
from importlib import metadata
from typing import Final

from invsvc_async.errors import ConfigurationError

# A package, and the least version of it that the modules of its engine take.
AIRFLOW: Final = ("apache-airflow-task-sdk", 1, 1)
AIRFLOW_TRIGGERER: Final = ("apache-airflow-core", 3, 1)
CELERY: Final = ("celery", 5, 3)
DASK: Final = ("dask", 2025, 1)
DLT: Final = ("dlt", 1, 5)
PROCRASTINATE: Final = ("procrastinate", 3)
RAY: Final = ("ray", 2, 50)
SPARK: Final = ("pyspark", 4)
TEMPORAL: Final = ("temporalio", 1, 18)


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
