"""Each module of ``benchmarks`` can be imported, so a name that it uses and the package has renamed is found."""

from importlib import import_module
from pathlib import Path

import pytest

import benchmarks

MODULES = sorted(path.stem for path in Path(benchmarks.__path__[0]).glob("bench_*.py"))


@pytest.mark.parametrize("name", MODULES)
def test_module_that_is_imported(name):
    """Its imports, from the package too, all exist."""
    assert import_module(f"benchmarks.{name}").__doc__
