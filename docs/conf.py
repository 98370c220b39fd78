"""Sphinx configuration: ``sphinx-build -W -n docs docs/_build``."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE), str(HERE / "_ext")]

from docutils import nodes  # noqa: E402 - after the path is set
from llms import groups_of, llms_txt  # noqa: E402 - the same
from sphinx import addnodes  # noqa: E402 - the same

from invsvc_async import __version__  # noqa: E402 - the same

project = "invsvc_async"
author = "The invsvc_async authors"
copyright = "2026, the invsvc_async authors"  # noqa: A001 - Sphinx's name for it
release = version = __version__

extensions = [
    "myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton",
    "code_marks", "command_line", "dark_pictures", "decision_diagram", "figures", "operations_table",
    "outputs", "phone_tables", "plots", "units",
]  # fmt: skip
exclude_patterns = ["_build", "_generated"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "show-inheritance": True}
python_use_unqualified_type_names = True
maximum_signature_line_length = 110
napoleon_google_docstring = True
napoleon_numpy_docstring = False

# External names and type aliases without a page here; their uses explain them.
OUTSIDE = r"(aiohttp|asyncio|collections|contextlib|datetime|decimal|enum|msgspec|pathlib|random|tls|web)\..*"
ALIASES = """
    Arrival Head OnSync OnBatch OnInvoice OnCustomer OnOther OnResource
    OfSyncs OfBatches OfInvoices OfCustomers OfOthers OfResources
    Any AnyReader AsgiApp Book Bounds Callable[[] Clock Credential CredentialKind datetime Decimal Entries
    Basis Cause Event EventName Form H Headers History InvoiceBatch Journal JourneyReads Json Literal['inline'
    AnyWrite Future HandOver R WriteOf os.PathLike
    EventPattern M MeterProvider Path Reader Record Request Scope Secrets Sent Step SyncedInvoice T T_co
    Observer SecretsSource SharedHeaders SharedHeadersSource State TracerProvider Version ClientOptions Wire
    ClientKeywords SimulatorSettings ServiceClock EventDelivery How
    HasOutcome Writes WireObject AbstractAsyncContextManager SSLContext ByName F Key Rows Where tzinfo
"""
INNER = (
    r"invsvc_async\.(.*\.)?"
    r"(\w*Event|AsgiApp|Book|Bounds|ByName|Clock|Credential|Delivering|End|H|Head|Items|M|Observer|OnlyAsync|Record|Request|Resource|Scope|ScriptedStore|Seeding|Sent|T|T_co|Uncopied"
    r"|ClientOptions|ClientKeywords|HandlerOptions|PostgresSettings|SimulatorSettings)"
)
DESCRIBED_BY_PAGES = {
    f"invsvc_async.{name}" for name in ("errors", "models", "settings")
}
NOT_CONSTRUCTED = {f"invsvc_async.{name}" for name in (
    "Batch", "Outbox", "Pages", "Write",
    "events.InvoiceBatchCompleted", "events.ResourceEvent", "events.SatInvoiceSynced",
)}  # fmt: skip
DATA = {
    "SatInvoiceSynced.data": "SyncedInvoice",
    "InvoiceBatchCompleted.data": "InvoiceBatch",
}
nitpick_ignore = [("py:class", name) for name in ALIASES.split()] + [
    ("py:exc", "says."),
    ("py:class", "Client | Callable[[]"),  # both wrapped
]
nitpick_ignore_regex = [("py:.*", OUTSIDE), ("py:.*", INNER)]
suppress_warnings = ["ref.python"]  # two classes are called `Entry`

# What a block prints is not copied.
copybutton_selector = "div[class*=highlight-]:not(.output) pre"

smartquotes = False  # keep quotes as typed, for copying

html_theme = "furo"
html_title = f"invsvc_async {release}"
html_static_path = ["_static"]
html_css_files = ["pages.css"]


def keep_colons(
    _app: object,
    what: str,
    _name: str,
    _thing: object,
    _options: object,
    lines: list[str],
) -> None:
    """Prevent napoleon from reading the words before an attribute's first colon as its type."""
    if what in {"attribute", "data", "property"} and lines:
        lines[0] = f": {lines[0]}"


def drop_private_bases(
    _app: object, _name: str, _thing: object, _options: object, bases: list[type]
) -> None:
    """Remove base classes that are no part of the interface."""
    bases[:] = [base for base in bases if not base.__name__.startswith("_")] or [object]


def drop_module_docstrings(
    _app: object,
    what: str,
    name: str,
    _thing: object,
    _options: object,
    lines: list[str],
) -> None:
    """Remove the docstrings of modules whose pages have their own introduction."""
    if what == "module" and name in DESCRIBED_BY_PAGES:
        lines.clear()


# a function or method as the default of an argument, whose name alone is of use
CALLABLE = r"<(?:built-in|bound) (?:function|method) ([\w.]+)(?:[^<>]|<[^<>]*>)*>"
# a default that is made for each call, or that has no name
MADE_ANEW = r"\s?=\s?(?:NOTHING\b|<factory>|<function [\w.]*<lambda>>)"


def adjust_signature(
    _app: object,
    what: str,
    name: str,
    thing: object,
    _options: object,
    arguments: str | None,
    result: str | None,
) -> tuple[str | None, str | None]:
    """Hide constructors that users do not call, and what a table tells; distinguish `date` from a field."""
    if what == "class" and (
        name in NOT_CONSTRUCTED or name.startswith("invsvc_async.resources.")
    ):
        return "", None
    if arguments and what == "exception" and "__init__" not in vars(thing):
        return "", None  # as its base
    if name == "invsvc_async.Client":
        return "(base_url: str, credential: Credential, **settings)", None
    if arguments is not None:
        arguments = arguments.replace(
            "datetime | date ", "datetime.datetime | datetime.date "
        )
        arguments = re.sub(CALLABLE, r"\1", arguments)
        arguments = re.sub(MADE_ANEW, "= ...", arguments)
    return arguments, result


def name_type_of_data(_app: Sphinx, doctree: nodes.document) -> None:
    """Show the type of a signed event's data, which is a parameter of its base class."""
    for signature in doctree.findall(addnodes.desc_signature):
        shown = DATA.get(signature.get("fullname", ""))
        if shown is None:
            continue
        for reference in signature.findall(addnodes.pending_xref):
            reference["reftarget"] = shown
            reference.clear()
            reference.append(nodes.Text(shown))


def tidy_descriptions(_app: Sphinx, doctree: nodes.document) -> None:
    """Drop "Bases: object", which says nothing, and show a dash after what a field names."""
    for paragraph in list(doctree.findall(nodes.paragraph)):
        if paragraph.astext() == "Bases: object":
            paragraph.parent.remove(paragraph)
    for text in list(doctree.findall(nodes.Text)):
        if text == " -- ":
            text.parent.replace(text, nodes.Text(" \N{EN DASH} "))


def drop_field_numbers(
    _app: Sphinx,
    _kind: str,
    _name: str,
    _it: object,
    _options: object,
    lines: list[str],
) -> None:
    """Drop what Python itself says of the fields of a named tuple."""
    if lines and lines[0].startswith("Alias for field number"):
        lines.clear()


def add_navigation(_app: Sphinx, name: str, source: list[str]) -> None:
    """Add the navigation to the first page, made of its list of all pages."""
    if name != "index":
        return
    trees = [("", ["tutorial"])]
    for caption, listed in groups_of(source[0]):
        # Others are below a page of their own.
        pages = [
            re.sub(r"^reference/.+", "reference/index", page)
            for page in listed
            if page.count("/") < 2
        ]
        trees.append((f":caption: {caption}\n", list(dict.fromkeys(pages))))
    for options, pages in trees:
        source[0] += (
            "\n```{toctree}\n:hidden:\n" + options + "\n" + "\n".join(pages) + "\n```\n"
        )


def write_llms_txt(app: Sphinx, error: Exception | None) -> None:
    """Write the list of all pages for agents, beside the pages."""
    if error is None and app.builder.format == "html":
        (Path(app.outdir) / "llms.txt").write_text(llms_txt(), encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Connect the hooks, before napoleon's where needed."""
    app.connect("autodoc-process-bases", drop_private_bases)
    app.connect("source-read", add_navigation)
    app.connect("doctree-read", name_type_of_data)
    app.connect("doctree-read", tidy_descriptions)
    app.connect("build-finished", write_llms_txt)
    app.connect("autodoc-process-docstring", keep_colons, priority=100)
    app.connect("autodoc-process-docstring", drop_module_docstrings)
    app.connect("autodoc-process-docstring", drop_field_numbers)
    app.connect("autodoc-process-signature", adjust_signature)
