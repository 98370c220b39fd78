"""Every "not shown" of the specification has its row on the page of limits, and no row is made up."""

from __future__ import annotations

import re

import pytest

from docs.tables import assumed
from invsvc_async.api.operations import BY_NAME
from invsvc_async.doctor.parameter_names import CANDIDATES, IMPORTS
from invsvc_async.settings import ParameterNames
from tests.docs.pages import ROOT

pytestmark = pytest.mark.untraced

PAGE = (ROOT / "docs/reference/limits.md").read_text()
WAYS = {"raw", "settable", "asked"}
NAMES = "names of parameters"  # the table that is made of the operations' rows
NOT_SHOWN = (
    ("What the service does", "the complete list of operations"),
    ("Payment link", "statuses of a payment link"),
    ("Payment link", "fields of a payment link's items"),
    ("Spreadsheet import connection", "keys of the spreadsheet mapping's `fields`"),
    ("Table-database import listings", "fields of the elements of those listings"),
    ("Payment reminder operation", "the shape of a reminder operation"),
    ("States and transitions, Journey", "moves between the states of a journey"),
    (
        "States and transitions, Invoice",
        "the operation that moves an invoice between states",
    ),
    (
        "States and transitions, download request",
        "states of a download other than `completed`",
    ),
    ("States and transitions, Team", "states of a team other than `active`"),
    ("Endpoints, egress", NAMES),
    ("Endpoints, payment complements", NAMES),
    ("Endpoints, Invoices", "request and response shapes of the seven operations"),
    ("Endpoints, Teams, create", "which fields of a new team are required"),
    ("Endpoints, Teams, listings", "parameters of the table-database listings"),
    ("Endpoints, Users", "the format of a user's id"),
    ("Endpoints, Users, preferences", "further fields of personal preferences"),
    (
        "Endpoints, Payments, link",
        "statuses of the six error answers of a payment link",
    ),
    ("Endpoints, Payments, reminder", "the shape of a reminder operation"),
    ("Endpoints, Spreadsheet import", "other properties of a mapping"),
    ("Endpoints, Webhooks", "the shape of the answer to a webhook's update"),
    ("Authentication", "issuance and refresh of OAuth tokens"),
    ("Events, which operation", "which operation emits which event"),
    ("Events, content", "content of `data`, event by event"),
    ("Errors", "error codes of each operation"),
    ("Limits, rates", "rate limits of requests"),
    ("Limits, credits", "amounts of document credits and daily limits"),
    ("Versioning", "the policy of deprecation and compatibility"),
)  # one for each place where the specification says so; one place may leave two things open


def rows_of(title):
    """Return the rows of the table below a heading."""
    section = re.search(
        rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL
    )[1]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]
    ]


ROWS = rows_of('Everything else that is "not shown"')


@pytest.mark.parametrize(
    ("place", "words"), NOT_SHOWN, ids=[place for place, _ in NOT_SHOWN]
)
def test_row_of_what_is_not_shown(place, words) -> None:
    """It has one row, which says how to live with it, and in which of the three ways."""
    if words is NAMES:
        assert len(assumed()) > 1
        assert "{operations-table} assumed" in PAGE
        return

    [row] = [row for row in ROWS if row[0].startswith(words)]

    assert len(row) == 3
    assert row[1]
    assert set(row[2].split(", ")) <= WAYS


def test_rows_of_what_is_shown() -> None:
    """There are none: each row of the table stands for a place where the specification is silent."""
    words = [words for _, words in NOT_SHOWN]

    assert [
        row[0] for row in ROWS if not any(row[0].startswith(each) for each in words)
    ] == []
    assert {row[2] for row in rows_of("What it does not mention")} <= WAYS | {
        "asked, settable"
    }


def test_names_that_doctor_asks() -> None:
    """It asks for every name that is assumed."""
    assert {*CANDIDATES, *IMPORTS} == set(ParameterNames.__annotations__)


def test_names_that_doctor_tries() -> None:
    """The page lists them, in their order."""
    page = (ROOT / "docs/how-to/doctor.md").read_text(encoding="utf-8")

    for role, names in {**CANDIDATES, **IMPORTS}.items():
        assert re.search(
            rf"^\|.*`{role}`.* \| {re.escape(', '.join(f'`{each}`' for each in names))} \|$",
            page,
            re.MULTILINE,
        )


def test_names_that_a_row_tells_are_those_of_the_table() -> None:
    """What the rows say is open, or assumed, is so in the table of operations."""
    for name, place in (
        ("users.update_preferences", "body"), ("sheets.save_mapping", "body"), ("webhooks.update", "body"),
        ("teams.dbtable_webhooks", "query"), ("payments.reminder_operation", "query"),
    ):  # fmt: skip
        assert place in BY_NAME[name].extra, name
    listing = {
        each.name: each.assumed for each in BY_NAME["teams.dbtable_webhooks"].parameters
    }
    assert listing["scope"] is None
    assert listing["state"]
    assert listing["limit"]
    assert not any(each.required for each in BY_NAME["teams.create"].parameters)
