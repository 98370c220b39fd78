"""What a comparison names: all that differs, with exact values, and nothing that a second reading takes back."""

from __future__ import annotations

import sqlite3
from collections import Counter
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest

from invsvc_async import InvalidRequestError, NotFoundError, ParameterNames, ServerError
from invsvc_async.drift import Comparison, FieldDifference, Kind
from invsvc_async.testing import quick_client

MEXICO = ZoneInfo("America/Mexico_City")


async def test_rows_that_agree(compare, rows):
    """Nothing is named, and the list is read once."""
    comparison, found = await compare(rows)

    assert found == []
    assert (comparison.rows_read, comparison.items_read, comparison.complete) == (
        12,
        12,
        True,
    )
    assert comparison.columns == {
        name: name for name in ("uuid", "total", "status", "created_at")
    }


async def test_each_kind_of_difference(compare, client, rows, invoices):
    """What is missing on either side, and what differs in which fields, is named, with its item; no other."""
    shown = await client.invoices.egress(limit=100)
    gone = rows.pop(5)
    (gone_as_shown,) = (each.to_dict() for each in shown if each.uuid == gone["uuid"])
    rows[2] |= {"total": rows[2]["total"] + 1, "status": "canceled"}
    rows.append(
        {
            "uuid": "MINE",
            "total": 5,
            "status": "valid",
            "created_at": rows[0]["created_at"],
        }
    )

    comparison, found = await compare(rows)

    assert [(each.kind, each.key, each.line) for each in found] == [
        (Kind.NOT_IN_ROWS, gone["uuid"], None),
        (Kind.DIFFERENT, rows[2]["uuid"], 3),
        (Kind.NOT_IN_SERVICE, "MINE", 12),
    ]
    assert found[1].fields == (
        FieldDifference("total", rows[2]["total"], invoices[2].total),
        FieldDifference("status", "canceled", "valid"),
    )
    assert comparison.counts == Counter(each.kind for each in found)
    missing, different, foreign = (each.item for each in found)
    assert missing.to_dict() == gone_as_shown
    assert (different.uuid, different.total) == (rows[2]["uuid"], invoices[2].total)
    assert foreign is None


@pytest.mark.parametrize(
    ("yours", "theirs", "same"),
    [
        ("10.0", "10.00", True),
        ("10", "1e1", True),
        (10, "10.00", True),
        (0.1, "0.1", True),
        (0.1 + 0.2, "0.3", False),
        ("1234567890.123456789", "1234567890.123456789", True),
        ("1234567890.123456788", "1234567890.123456789", False),
        (9007199254740993, "9007199254740992", False),
        (None, "0", False),
    ],
)
async def test_numbers_are_compared_by_exact_value(
    compare, rows, yours, theirs, same, put
):
    """As decimals, however they are written, and never as floats."""
    uuid = rows[0]["uuid"]
    put(uuid, total=Decimal(theirs))
    rows[0]["total"] = yours

    _, found = await compare(rows)

    assert [each.key for each in found] == ([] if same else [uuid])


@pytest.mark.parametrize(
    ("write", "zone"),
    [
        (lambda at: at.isoformat(), None),
        (lambda at: at.astimezone(timezone(timedelta(hours=-7))), None),
        (lambda at: at.astimezone(MEXICO).replace(tzinfo=None).isoformat(" "), MEXICO),
        (lambda at: at.astimezone(MEXICO).replace(tzinfo=None), MEXICO),
        (lambda at: int(at.timestamp() * 1000), MEXICO),
        (lambda at: str(int(at.timestamp() * 1000)), None),
    ],
)
async def test_times_are_compared_as_instants(compare, rows, write, zone):
    """In any zone and form; a second later they differ, and both are told in UTC."""
    at = datetime(2026, 5, 1, 12, tzinfo=UTC)
    for row in rows:
        row["created_at"] = write(datetime.fromtimestamp(row["created_at"] / 1000, UTC))
    assert (await compare(rows, zone=zone))[1] == []

    rows[0]["created_at"] = write(at)
    _, (found,) = await compare(rows, zone=zone)

    assert [(each.field, each.yours) for each in found.fields] == [
        ("created_at", "2026-05-01T12:00:00.000Z")
    ]


@pytest.mark.parametrize(
    ("text", "zone", "words"),
    [
        ("2026-05-01T12:00:00", None, "has no offset from UTC"),
        (
            "2026-11-01T01:30:00",
            ZoneInfo("America/New_York"),
            "exists twice or not at all in America/New_York",
        ),
        (
            "2026-03-08T02:30:00",
            ZoneInfo("America/New_York"),
            "exists twice or not at all",
        ),
        ("yesterday", MEXICO, "is neither a time in ISO 8601 nor epoch ms"),
        (True, MEXICO, "is neither a time"),
        (-1, MEXICO, "is neither a time"),
    ],
)
async def test_times_that_cannot_be_placed(compare, rows, text, zone, words):
    """They are told with line and column, and nothing is compared."""
    rows[3]["created_at"] = text

    with pytest.raises(InvalidRequestError, match=rf"line 4: created_at: .*{words}"):
        await compare(rows, zone=zone)


@pytest.mark.parametrize(
    ("text", "kept"),
    [("20000101", 12), ("20991231", 0), ("0", 12), ("4102444800000", 0)],
)
async def test_date_without_hyphens(compare, rows, text, kept):
    """It is a date, as ISO 8601 has it, and not a time within the first two days of 1970; other digits are ms."""
    comparison, _ = await compare(rows, created_from=text, zone=UTC)

    assert len(rows) - comparison.rows_outside == kept


async def test_nulls(compare, rows):
    """A null is an absent field; an empty text is another value."""
    for row in rows:
        row["idempotency_key"] = None
    assert (await compare(rows))[1] == []

    rows[0]["idempotency_key"] = ""
    _, (found,) = await compare(rows)

    assert found.fields == (FieldDifference("idempotency_key", "", None),)


async def test_fields_by_column(compare, invoices):
    """Columns of other names, nested fields and free-form ones are compared; a field can be left out."""
    rows = [
        {"folio": each.uuid, "rfc": each.client["tax_id"], "order": each.metadata["order"], "status": "mine",
         "mail": list(each.emails), "concept": "Paper"}
        for each in invoices
    ]  # fmt: skip
    fields = {
        "uuid": "folio",
        "client.tax_id": "rfc",
        "metadata.order": "order",
        "emails": "mail",
    }
    fields["status"] = None
    comparison, found = await compare(rows, fields=fields)
    assert found == []
    assert comparison.columns["concept"] is comparison.columns["status"] is None

    rows[0] |= {"rfc": "XAXX010101000", "order": "B-1", "mail": []}
    _, (found,) = await compare(rows, fields=fields)

    assert [each.field for each in found.fields] == [
        "client.tax_id",
        "metadata.order",
        "emails",
    ]


@pytest.mark.parametrize(
    ("more", "note"),
    [
        (2, "3 rows: 1, 13, 14"),
        (30, "31 rows: 1, 13, 14, 15, 16, 17, 18, 19, 20, 21, …"),
    ],
)
async def test_rows_with_one_key(compare, rows, more, note):
    """The first ten are told with their lines, and none of them is guessed to be the right one."""
    _, (found,) = await compare(rows + [rows[0] | {"total": n} for n in range(more)])

    assert (found.kind, found.key, found.line) == (Kind.DUPLICATE, rows[0]["uuid"], 1)
    assert found.note == note


@pytest.mark.parametrize("odd", ["{} ", " {}", "{}\u00a0", "{}\u200b", "{}\n", "\t{}"])
async def test_key_with_white_space(compare, rows, odd):
    """It is not trimmed: both sides are missing, and why is told."""
    uuid = rows[0]["uuid"]
    rows[0]["uuid"] = odd.format(uuid)

    _, found = await compare(rows)

    assert [(each.kind, each.key) for each in found] == [
        (Kind.NOT_IN_ROWS, uuid),
        (Kind.NOT_IN_SERVICE, odd.format(uuid)),
    ]
    assert (
        found[1].note
        == f"its key has white space or hidden characters: {odd.format(uuid)!r}"
    )


async def test_key_in_another_case(compare, rows):
    """It is another key, unless case is to be ignored."""
    lower = [row | {"uuid": row["uuid"].lower()} for row in rows]

    assert len((await compare(lower))[1]) == 24
    assert (await compare(lower, ignore_case=True))[1] == []


@pytest.mark.parametrize("empty", [None, ""])
async def test_row_without_a_key(compare, rows, empty):
    """It is told with its line; the comparison goes on."""
    rows[4]["uuid"] = empty

    _, found = await compare(rows)

    assert [(each.kind, each.line) for each in found] == [
        (Kind.NOT_IN_ROWS, None),
        (Kind.NO_KEY, 5),
    ]


async def test_window(compare, rows):
    """It includes its begin and not its end; rows outside it are not missing, and others are not listed."""
    ordered = sorted(rows, key=lambda row: row["created_at"])
    begin, end = ordered[3]["created_at"], ordered[8]["created_at"]
    window = {"created_from": begin, "created_to": end}
    comparison, found = await compare(rows, **window)
    assert (found, comparison.rows_read, comparison.rows_outside) == ([], 12, 7)
    comparison, found = await compare(ordered[3:8], **window)
    assert (found, comparison.rows_outside) == ([], 0)

    _, found = await compare([], **window)

    assert [each.key for each in found] == [row["uuid"] for row in ordered[3:8]]


async def test_window_in_local_time(compare, rows):
    """A date is midnight in the zone, as in rows."""
    midnight = datetime(2026, 5, 1, tzinfo=MEXICO)
    comparison = Comparison(
        None, "webhooks.list", [], created_from="2026-05-01", zone=MEXICO
    )

    assert comparison._window == (int(midnight.timestamp() * 1000), None)
    with pytest.raises(InvalidRequestError, match=r"created_from: .* has no offset"):
        await compare(rows, created_from="2026-05-01")


async def test_difference_that_the_second_reading_takes_back(
    compare, rows, service, put
):
    """The first reading is stale: it shows an old total, and lacks a new invoice.  Neither is named."""
    uuid = rows[0]["uuid"]
    rows[0]["total"] = "77.7"
    rows.append(rows[0] | {"uuid": "NEW"})
    put(uuid, total=Decimal("77.70"))
    put(uuid, uuid="NEW")
    service.script("invoices.egress", "stale 30")

    _, found = await compare(rows)

    assert found == []
    assert service.arrivals("invoices.egress") == 2


async def test_difference_that_only_the_second_reading_shows_is_read_again(
    compare, rows, service, put
):
    """The first reading lacks an invoice, the second shows another total of it, and the third confirms that."""
    put(rows[0]["uuid"], uuid="NEW", total=5)
    rows.append(rows[0] | {"uuid": "NEW", "total": 6})
    service.script("invoices.egress", "stale 30")

    _, (found,) = await compare(rows)

    assert (found.kind, found.fields) == (
        Kind.DIFFERENT,
        (FieldDifference("total", 6, 5),),
    )
    assert service.arrivals("invoices.egress") == 3


async def test_change_after_the_first_reading(compare, rows, service, put):
    """What agreed then is not looked at when the list is read again for something else."""
    put(rows[0]["uuid"], total=5)
    service.script("invoices.egress", "stale 30")

    _, found = await compare([*rows, {"uuid": "MINE"}])

    assert [each.key for each in found] == ["MINE"]
    assert service.arrivals("invoices.egress") == 2


async def test_thing_that_changes_with_every_reading(compare, rows, service, put):
    """Nothing is named, and the comparison says that it is not complete."""
    put(rows[0]["uuid"], uuid="NEW", total=5)
    rows.append(rows[0] | {"uuid": "NEW", "total": 6})
    service.script(
        "invoices.egress", "pass", "stale 30", "stale 30", "pass", "stale 30"
    )

    comparison, found = await compare(rows)

    assert (found, comparison.complete) == ([], False)
    assert service.arrivals("invoices.egress") == 5


@pytest.mark.parametrize("name", [None, "since"])
async def test_deployment_without_a_time_filter(service, rows, name):
    """What is in doubt is read again with the whole list, where its time span cannot be."""
    rows[3]["total"] = 1
    del rows[4]
    names = ParameterNames(created_after=name, created_before=name and "until")
    async with quick_client(service, names=names) as client:
        found = [each async for each in Comparison(client, "invoices.egress", rows)]

    assert [each.kind for each in found] == [Kind.NOT_IN_ROWS, Kind.DIFFERENT]


async def test_span_in_which_nothing_is_shown(compare, rows, service, put):
    """A difference is not dropped because a narrow reading lacks it: the whole list decides."""
    put(rows[0]["uuid"], uuid="NEW")
    service.script("invoices.egress", "pass", "stale 30")

    _, (found,) = await compare(rows)

    assert (found.kind, found.key) == (Kind.NOT_IN_ROWS, "NEW")
    assert service.arrivals("invoices.egress") == 3


async def test_malformed_items(compare, rows, put):
    """A field that is not what it should be differs, and is shown as it was received."""
    for number, broken in enumerate(
        ({"total": "ten"}, {"created_at": 10**30}, {"status": {"a": [None]}})
    ):
        put(rows[number]["uuid"], **broken)

    _, found = await compare(rows)

    assert [each.line for each in found] == [1, 2, 3]
    assert [each.fields[0].theirs for each in found] == ["ten", 10**30, {"a": [None]}]
    assert [[wrong.raw for wrong in each.item.problems] for each in found] == [
        [each.fields[0].theirs] for each in found
    ]


async def test_one_difference_is_read_again_alone(compare, rows, service):
    """Not with the whole list: only what was created at that moment.  A missing row needs all of it."""
    service.seed_invoices(120)
    rows = [
        {"uuid": each.uuid, "total": each.total}
        for each in service.book().invoices.items.values()
        if each.invoice_type == "E"
    ]
    rows[3]["total"] = 1

    _, (found,) = await compare(rows)

    assert found.key == rows[3]["uuid"]
    assert service.arrivals("invoices.egress") == 2 + 1
    await compare([*rows, {"uuid": "MINE"}])
    assert service.arrivals("invoices.egress") == 3 + 2 + 2


@pytest.mark.parametrize("kind", ["list", "generator", "async", "sqlite"])
async def test_sources_of_rows(compare, rows, kind):
    """Rows come from any iterable, of mappings or of the records of database drivers."""

    async def queried():
        for row in rows:
            yield row

    database = sqlite3.connect(":memory:")
    database.row_factory = sqlite3.Row
    database.execute("CREATE TABLE mine (uuid, total, status)")
    database.executemany(
        "INSERT INTO mine VALUES (?, ?, ?)",
        [(r["uuid"], str(r["total"]), r["status"]) for r in rows],
    )
    cursor = database.execute("SELECT * FROM mine")
    source = {
        "list": rows,
        "generator": (row for row in rows),
        "async": queried(),
        "sqlite": cursor,
    }[kind]

    comparison, found = await compare(source)
    database.close()

    assert (found, comparison.rows_read) == ([], 12)


async def test_payment_complements(compare, service):
    """Their list is compared as well."""
    rows = [
        {"uuid": each.uuid, "total": 0}
        for each in service.book().invoices.items.values()
        if each.invoice_type == "P"
    ]
    assert (await compare(rows, "invoices.payment_complements"))[1] == []

    _, (found,) = await compare(rows[1:], "invoices.payment_complements")

    assert (found.kind, found.key) == (Kind.NOT_IN_ROWS, rows[0]["uuid"])


async def test_webhooks_are_read_again_by_id(compare, service):
    """Each in doubt is read by its id; a secret in the rows is never compared or told."""
    hooks = [service.seed_webhook(url=f"https://me.example/{n}") for n in range(4)]
    rows = [
        {"id": hook.id, "url": hook.url, "status": "active", "secret": "whsec_mine"}
        for hook in hooks
    ]
    rows[0]["status"] = "inactive"
    rows += [{"id": "wh_none", "url": "x"}, {"id": "no id", "url": "x"}]

    comparison, found = await compare(rows[1:] + rows[:1], "webhooks.list")

    assert [(each.kind, each.key) for each in found] == [
        (Kind.NOT_IN_SERVICE, "wh_none"), (Kind.NOT_IN_SERVICE, "no id"), (Kind.DIFFERENT, hooks[0].id)]  # fmt: skip
    assert (service.arrivals("webhooks.list"), service.arrivals("webhooks.get")) == (
        1,
        2,
    )
    assert comparison.columns["secret"] is None
    with pytest.raises(InvalidRequestError, match="has no field secret"):
        await compare(rows, "webhooks.list", fields={"secret": "secret"})


async def test_webhook_that_a_gateway_does_not_know(compare, service):
    """Only the service's own 404 shows that it is not there."""
    hook = service.seed_webhook()
    service.script("webhooks.get", *["gateway 404"] * 8)

    with pytest.raises(NotFoundError):
        await compare([{"id": hook.id, "url": "x"}], "webhooks.list")


async def test_webhooks_in_another_case_are_read_again_by_their_ids(compare, service):
    """Case is ignored in the comparison only: reads have the service's own ids, and a difference the row's."""
    same, changed, missing = (
        service.seed_webhook(id=f"wh_{name}", url="x") for name in ("Aa", "Bb", "Cc")
    )
    rows = [{"id": hook.id.upper(), "url": "x"} for hook in (same, changed)]
    rows[1]["url"] = "y"

    _, found = await compare(
        [*rows, {"id": "wh_None", "url": "x"}], "webhooks.list", ignore_case=True
    )

    assert [(each.kind, each.key) for each in found] == [
        (Kind.NOT_IN_ROWS, missing.id), (Kind.DIFFERENT, "WH_BB"), (Kind.NOT_IN_SERVICE, "wh_None")]  # fmt: skip
    assert service.arrivals("webhooks.get") == 3


async def test_webhooks_in_another_case_that_the_list_does_not_show(compare, service):
    """Nobody knows their ids, so they are not said to be missing; what the list shows is told."""
    hooks = [service.seed_webhook(url="x") for _ in range(103)]
    rows = [
        {"id": hook.id.upper(), "url": "y" if hook is hooks[50] else "x"}
        for hook in hooks
    ]

    comparison, found = await compare(rows, "webhooks.list", ignore_case=True)

    assert [(each.kind, each.key) for each in found] == [
        (Kind.DIFFERENT, hooks[50].id.upper())
    ]
    assert not comparison.complete


async def test_webhooks_deleted_meanwhile(compare, service):
    """The list was stale: what it alone shows is not named."""
    hook = service.seed_webhook(url="https://me.example/1")
    service.remove_webhook(hook.id)
    service.script("webhooks.list", "stale 30")

    comparison, found = await compare([], "webhooks.list")

    assert (found, comparison.items_read) == ([], 1)


async def test_more_webhooks_than_the_list_shows(compare, service):
    """Rows of hidden ones are read by id; that others may be missing in the rows is told."""
    hooks = [service.seed_webhook(url=f"https://me.example/{n}") for n in range(103)]
    rows = [{"id": hook.id, "url": hook.url} for hook in hooks]
    rows[2]["url"] = rows[101]["url"] = "https://me.example/other"

    comparison, found = await compare(
        [*rows, {"id": "wh_none", "url": "x"}], "webhooks.list"
    )

    assert [each.key for each in found] == [hooks[2].id, hooks[101].id, "wh_none"]
    assert not comparison.complete


async def test_read_that_fails(service, rows):
    """A transient failure is retried; a lasting one is raised."""
    async with quick_client(service) as client:
        service.script("invoices.egress", "500", "reset")
        assert [
            each async for each in Comparison(client, "invoices.egress", rows)
        ] == []
        service.script("invoices.egress", *["500"] * 9)
        with pytest.raises(ServerError):
            [each async for each in Comparison(client, "invoices.egress", rows)]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"what": "users.get"},
            "what: 'users.get' is unknown. Use one of invoices.egress",
        ),
        (
            {"fields": {"amount": "total"}},
            "fields: Invoice has no field amount. Name a field, then your column",
        ),
        (
            {"fields": {"total": "amount"}},
            "amount: no row has this column. There are uuid, total",
        ),
        ({"fields": {"uuid": None}}, "None: no row has this column"),
        ({"created_to": "soon"}, "created_to: 'soon' is neither a time"),
    ],
)
async def test_arguments_that_are_wrong(compare, rows, settings, words):
    """They are told in words."""
    with pytest.raises(InvalidRequestError) as raised:
        await compare(rows, **settings)
    assert words in str(raised.value)


async def test_bad_rows(compare, rows):
    """The first twenty are named by line and column; nothing is asked of the service."""
    bad = [row | {"total": "12,50"} for row in rows] * 3
    with pytest.raises(InvalidRequestError, match="surrogates not allowed"):
        await compare([{"uuid": "\ud800"}])

    with pytest.raises(InvalidRequestError) as raised:
        await compare([5, *bad])

    assert raised.value.problems[0] == "line 1: is no mapping of columns to values"
    assert raised.value.problems[1].startswith("line 2: total: '12,50' is not a number")
    assert len(raised.value.problems) == 20
