"""The names at the top of the package: what type checkers are shown is what a program gets."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import invsvc_async
from invsvc_async import models

# Of 0.1.0's names at the top: models inside others, and their enumerations.
INSIDE_OTHERS = {
    "Address", "Automation", "Brand", "ClonedFrom", "DbtableConnection", "DbtableScope",
    "DownloadPackage", "Edge", "Efos", "EmailSettings", "HistoricalReferences", "Integration",
    "InvoiceItem", "InvoiceStamp", "InvoiceStatus", "JourneyGraph", "JourneyOrigin", "JourneyStats",
    "JourneyStatus", "Member", "Meta", "MethodType", "Model", "Node", "NodeData", "PausedReason",
    "Periodicity", "Position", "RelatedDocuments", "SatState", "SheetMapping", "SyncSummary",
    "SyncTotals", "TeamSettings", "Viewport", "WebhookStatus",
}  # fmt: skip


def shown(package):
    """Return the name and module of each import that only type checkers see; a folder's module is its own."""
    tree = ast.parse(Path(package.__file__).read_text())
    block = next(each for each in tree.body if isinstance(each, ast.If))
    return {
        name: each.module
        for each in block.body
        for alias in each.names
        for name in (
            import_module(each.module).__all__ if alias.name == "*" else [alias.name]
        )
    }


@pytest.mark.parametrize("package", [invsvc_async, models])
def test_names_shown_to_type_checkers_are_those_that_are_exported(package):
    """What is loaded at the first use is what the modules themselves list; all models are shown at the top, too."""
    exported = {*package.__all__, *models.__all__}

    assert shown(package).keys() == exported - {"__version__"}


def test_names_at_the_top_are_those_that_programs_begin_with():
    """What stands inside other models has its home in ``models``, and neither ``dir`` nor ``*`` brings it."""
    listed = {*invsvc_async.__all__}

    assert len(listed) < 100
    assert [*listed & INSIDE_OTHERS] == []
    assert {*dir(invsvc_async)} == listed
    assert {*models.__all__} >= INSIDE_OTHERS


@pytest.mark.parametrize("name", sorted(INSIDE_OTHERS))
def test_name_that_0_1_0_had_at_the_top(name):
    """It is still imported from there, and is the same class, so that pickles do not change."""
    assert getattr(invsvc_async, name) is getattr(models, name)
    assert name not in dir(invsvc_async)


@pytest.mark.parametrize(("name", "module"), shown(invsvc_async).items())
def test_name_is_what_type_checkers_take_it_for(name, module):
    """It is the same thing as in the module that they are shown."""
    is_module = module == "invsvc_async"
    meant = (
        import_module(f"{module}.{name}")
        if is_module
        else getattr(import_module(module), name)
    )

    assert getattr(invsvc_async, name) is meant


def test_name_that_is_not_exported():
    """It is an AttributeError, and nothing is loaded for it."""
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        invsvc_async.Nothing  # noqa: B018


def test_errors_load_no_client():
    """To ask for a light name does not load aiohttp."""
    code = "import sys; from invsvc_async import InvsvcError, Timeouts; sys.exit('aiohttp' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], check=False, cwd=Path.cwd())  # noqa: S603

    assert ended.returncode == 0
