"""Plain forms: to dict and JSON and back, encoders, and what notebooks show."""

from __future__ import annotations

import pickle
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from io import StringIO

import attrs
import httpx
import msgspec
import pytest
from rich.console import Console
from rich.pretty import Pretty

from invsvc_async import Outcome, Page, events, models, unstructure
from invsvc_async.batch.result import Summary
from invsvc_async.codec import decode_items, enc_hook, envelope
from invsvc_async.errors import (
    InvalidRequestError,
    InvsvcError,
    NotFoundError,
    ResponseLostError,
)
from invsvc_async.models import Invoice, Journey, Webhook, WebhookList
from invsvc_async.reconcile.history import Verdict
from tests.codec.recorded import SAMPLES
from tests.codec.test_samples import spelt
from tests.events.bodies import (
    RESOURCE_TYPES,
    SIGNED_TYPES,
    VERSIONS,
    encoded,
    signed_body,
)

DIGITS = "1234567890.123456789"
LONG = Invoice.from_json(f'{{"uuid":"A","total":{DIGITS},"news":{DIGITS}}}')
MARKUP = "<script>alert(1)</script>"


@pytest.mark.parametrize("name", SAMPLES)
def test_model_to_plain_and_back(name):
    """Each sample becomes plain data and JSON with the wire's digits, and from both the same model."""
    cls, plain = getattr(models, name), envelope.loads(SAMPLES[name].encode())
    model = cls.from_dict(plain)

    assert spelt(model.to_dict()) == spelt(plain)
    assert spelt(envelope.loads(model.to_json().encode())) == spelt(plain)
    assert cls.from_json(model.to_json()) == cls.from_dict(model.to_dict()) == model
    assert type(cls.from_json(model.to_json())) is cls


def test_digits_of_json():
    """Digits that a float would lose are in the JSON, in known and unknown fields."""
    assert LONG.to_json() == f'{{"uuid":"A","total":{DIGITS},"news":{DIGITS}}}'
    assert LONG.to_dict()["total"] == LONG.extra["news"] == Decimal(DIGITS)


def test_from_dict_keeps_nothing_of_the_caller():
    """A change of the given data does not change the model."""
    plain = {"id": "jrn_1", "graph": {"nodes": [], "edges": []}, "news": {"a": 1}}
    journey = Journey.from_dict(plain)
    plain["news"]["a"] = 2

    assert journey.extra["news"] == {"a": 1}


def test_broken_field_of_plain_data():
    """A field of the wrong type is a problem of the model, as in an answer, and goes back as it came."""
    model = Invoice.from_dict({"uuid": 7})

    assert [problem.address for problem in model.problems] == ["$.uuid"]
    assert model.to_dict() == {"uuid": 7}


def nested(levels):
    value = None
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [*map(Decimal, ("NaN", "sNaN", "-Infinity")), nested(300), nested(5_000), {1: 2}],
)
@pytest.mark.parametrize(
    "field", ["total", "created_at", "folio_number", "metadata", "unknown"]
)
def test_value_that_json_cannot_represent(field, value):
    """A number that is none, deep nesting and a key that is no text are refused in words."""
    for read in (
        Invoice.from_dict,
        lambda plain: Page[Invoice].from_dict({"data": [plain]}),
    ):
        with pytest.raises(InvalidRequestError, match=r"cannot|nested|not a string"):
            read({field: value})


def test_field_that_is_no_text_in_utf8():
    """One bad byte of the service does not keep a page from being encoded."""
    (invoice,) = decode_items(Invoice, [b'{"uuid":"\xff","total":1.10}'])

    assert Page(items=(invoice,)).to_json() == '{"success":true,"data":[{"uuid":"\ufffd","total":1.10}],"next":null,"has_more":false}'  # fmt: skip


def test_page_with_a_cursor_and_a_number():
    """No member of a page is left out, whatever envelope the service mixed."""
    for page in (
        Page(items=(), next="c", has_more=True, page=2, per_page=3),
        Page(items=(), per_page=3),
        Page(items=(), timestamp=datetime(2150, 1, 1, tzinfo=UTC)),
        Page(items=(), timestamp=datetime(1950, 1, 1, 0, 0, 0, 5_000, tzinfo=UTC)),
    ):
        assert Page.from_json(page.to_json()) == page


@pytest.mark.parametrize("microseconds", [0, 500, 999, 1_000, 999_500])
@pytest.mark.parametrize("year", [1, 1969, 1970, 2024])
def test_time_in_parts_of_a_millisecond(year, microseconds):
    """A time before 1970 has a negative number of milliseconds, with its fraction."""
    time = datetime(year, 12, 31, 23, 59, 59, microseconds, tzinfo=UTC)

    found = Invoice(created_at=time).to_dict()["created_at"]

    assert Decimal(found) * 1000 == (
        time - datetime(1970, 1, 1, tzinfo=UTC)
    ) // timedelta(microseconds=1)


@pytest.mark.parametrize(
    "cls", [Webhook, Page[Webhook], WebhookList, Outcome, events.ResourceEvent]
)
@pytest.mark.parametrize("text", ["", "[]", "7", '"a"', "{", "{}x", "\ud800"])
def test_text_that_is_no_object(cls, text):
    """What is not a JSON object is refused in words."""
    with pytest.raises(InvalidRequestError):
        cls.from_json(text)


async def test_page_is_the_envelope_of_the_wire(service, client):
    """A page of each kind of list has the wire's own members and digits."""
    header = {"Authorization": f"Bearer {service.api_key}"}
    for pages, path in ((client.invoices.egress(limit=3), "/invoices/egress?limit=3"),):
        page = await pages
        async with httpx.AsyncClient() as browser:
            theirs = envelope.loads(
                (await browser.get(f"{service.base_url}{path}", headers=header)).content
            )

        ours = page.to_dict()
        assert ours.pop("timestamp") <= theirs.pop("timestamp")
        assert (
            ours.pop("next").partition(".")[0] == theirs.pop("next").partition(".")[0]
        )
        assert spelt(ours) == spelt(theirs)
        assert Page[Invoice].from_json(page.to_json()) == page
        assert Page[Invoice].from_dict(page.to_dict()) == page
        assert pickle.loads(pickle.dumps(page)) == page  # noqa: S301 - our own
        assert Page.from_dict(page.to_dict()).items[0] == page[0].to_dict()


async def test_webhook_list(client):
    """A list of webhooks goes there and back."""
    hooks = await client.webhooks.list(limit=1)

    assert WebhookList.from_json(hooks.to_json()) == hooks


@pytest.mark.parametrize(
    "wrong", [{"data": 7}, {}, {"data": [], "next": 7}, {"data": [], "timestamp": "now"}, {"data": [], "page": True}]
)  # fmt: skip
def test_page_of_the_wrong_form(wrong):
    """A member of the wrong type is named."""
    with pytest.raises(InvalidRequestError, match=r"data|next|timestamp|page"):
        Page[Webhook].from_dict(wrong)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", RESOURCE_TYPES)
def test_resource_event(name, version):
    """The JSON of an event is its body; read back, it is the same event."""
    event = events.parse(encoded(VERSIONS[version](name)))

    assert event.to_json().encode() == event.raw
    assert events.ResourceEvent.from_json(event.to_json()) == event
    again = events.ResourceEvent.from_dict(event.to_dict())
    assert again.to_dict() == event.to_dict() == envelope.loads(event.raw)
    assert (again.version, again.data) == (event.version, event.data)
    assert unstructure(event) == event.to_dict()
    with pytest.raises(InvalidRequestError, match="ResourceEvent"):
        events.SatInvoiceSynced.from_json(event.to_json())


@pytest.mark.parametrize("name", SIGNED_TYPES)
def test_signed_event(name):
    """Signed events keep their data, digit by digit."""
    event = events.parse(encoded(signed_body(name)))

    assert type(event).from_json(event.to_json()) == event
    assert type(event).from_dict(event.to_dict()).data == event.data


def test_test_mark_of_the_headers():
    """A mark that only the headers had is in the plain form, so that a test never becomes real."""
    event = events.parse(
        encoded(VERSIONS["v2"]("invoice.created")), {"X-Invsvc-Test": "true"}
    )
    marked = attrs.evolve(event, is_test=True)

    assert events.ResourceEvent.from_dict(marked.to_dict()).is_test
    assert events.ResourceEvent.from_json(marked.to_json()).is_test


async def test_outcome_that_needed_reads(service, client):
    """After a lost answer, the outcome read back has the value, the intent and the whole story."""
    service.script("journeys.update", "apply, then reset")
    outcome = await client.journeys.update("jrn_1", name="May").outcome()

    for back in (
        Outcome[Journey].from_json(outcome.to_json()),
        Outcome.from_dict(outcome.to_dict()),
    ):
        assert back.verdict is Verdict.APPLIED
        assert (back.value, back.intent, back.history) == (
            outcome.value,
            outcome.intent,
            outcome.history,
        )
        assert back.explain() == outcome.explain()
        assert (type(back.error), str(back.error)) == (
            ResponseLostError,
            str(outcome.error),
        )
        assert (await client.settle(back.intent)).verdict is Verdict.APPLIED
    assert len(service.ledger.effects("journeys.update")) == 1


async def test_refused_outcome(client):
    """The error of a refusal is read back with its class, status, code and text."""
    outcome = await client.journeys.update("jrn_none", name="May").outcome()
    back = Outcome.from_json(outcome.to_json())

    assert (type(back.error), str(back.error)) == (NotFoundError, str(outcome.error))
    with pytest.raises(NotFoundError) as raised:
        back.unwrap()
    assert (raised.value.status, raised.value.code) == (404, "resource_not_found")


async def test_secret_of_an_outcome(client):
    """No form of an outcome has the webhook's secret, and read back it says so."""
    outcome = await client.webhooks.create(
        url="https://me.example/in", events=["invoice.created"]
    ).outcome()
    secret = outcome.value.secret

    assert secret
    forms = (outcome.to_json(), repr(outcome.to_dict()), outcome._repr_html_(), msgspec.json.encode(outcome, enc_hook=enc_hook).decode())  # fmt: skip
    assert not [form for form in forms if secret in form]
    assert outcome.value.to_dict()["secret"] == secret  # the model is the wire's own
    assert Outcome.from_json(outcome.to_json()).secret == "not stored"


@pytest.mark.parametrize(
    "change",
    [
        {"verdict": "maybe"}, {"verdict": None}, {"intent": None}, {"intent": "{}"}, {"history": 7}, {"schema": 99},
        {"message": 7}, {"attempts": "1"}, {"evidence": {"basis": 7, "more": 1}},
    ],
)  # fmt: skip
async def test_outcome_of_the_wrong_form(client, change):
    """A damaged outcome is refused, and never gets another verdict."""
    plain = (await client.journeys.update("jrn_1", name="May").outcome()).to_dict()

    with pytest.raises(InvalidRequestError):
        Outcome.from_dict({**plain, **change})


@pytest.mark.parametrize(
    "wrong", [7, [], {"a": 1}, True, pytest.param(10**400, id="huge"), "a"]
)
@pytest.mark.parametrize(
    "member",
    ["retry_after", "code", "message", "details", "operation", "status", "text"],
)
async def test_error_of_the_wrong_form(client, member, wrong):
    """A damaged error is refused, or read as far as it can be."""
    plain = (await client.journeys.update("jrn_1", name="May").outcome()).to_dict()
    error = {
        "type": "ConflictError",
        "text": "a",
        "status": 409,
        "retry_after": 1,
        member: wrong,
    }

    read = Outcome.from_dict({**plain, "error": error})

    assert isinstance(read.error, InvsvcError)
    assert isinstance(
        read.error.retry_after if member != "status" else 1.0, float | None
    )
    assert str(read.error)


async def test_time_out_of_range_in_a_history(client):
    """A damaged outcome whose history has a time of the service that no clock shows is refused."""
    plain = (await client.journeys.update("jrn_1", name="May").outcome()).to_dict()
    plain["history"][0]["stamp"] = 10**400

    with pytest.raises(InvalidRequestError, match="stamp"):
        Outcome.from_dict(plain)


async def test_msgspec_hook(client):
    """Msgspec encodes models, pages and outcomes with all digits, within other data too."""
    page = Page(items=(LONG,))
    outcome = await client.journeys.update("jrn_1", name="May").outcome()

    text = msgspec.json.encode(
        {"one": LONG, "page": page, "outcome": outcome}, enc_hook=enc_hook
    ).decode()

    assert text.count(DIGITS) == 4
    assert f'"{DIGITS}"' not in text
    assert '"verdict":"applied"' in text
    with pytest.raises(NotImplementedError, match="object"):
        msgspec.json.encode({"a": object()}, enc_hook=enc_hook)


def test_rich_and_notebooks():
    """What a console and a notebook show is escaped, and has no secret."""
    hook = Webhook(id="wh_1", url=f"https://me.example/{MARKUP}", secret="whsec_hush")
    console = Console(width=200, record=True, file=StringIO())
    console.print(Pretty(hook))
    shown = [
        hook._repr_html_(),
        Page(items=(hook,))._repr_html_(),
        WebhookList(items=(hook,))._repr_html_(),
    ]

    assert "Webhook(id='wh_1'" in console.export_text()
    assert all("wh_1" in html and "&lt;script&gt;" in html for html in shown)
    assert not [
        html
        for html in (*shown, console.export_text(styles=False))
        if "<script>" in html and "<td>" in html
    ]
    assert not [html for html in shown if "whsec_hush" in html]


def test_table_of_a_page_without_models():
    """Items that are no models are in one column."""
    shown = Page(items=("one", 2))._repr_html_()

    assert "<th>value</th>" in shown
    assert "<td>one</td>" in shown
    assert "<td>2</td>" in shown


async def test_tables_of_pages_and_reports(client):
    """Pages and the summary of a batch have tables, too."""
    pages = client.invoices.egress(series=MARKUP)
    summary = Summary(to_do=3, verdicts={Verdict.APPLIED: 2})

    assert "not loaded" in pages._repr_html_()
    assert "&lt;script&gt;" in pages._repr_html_()
    assert "<td>applied</td><td>2</td>" in summary._repr_html_()


def test_import_of_pydantic():
    """Nothing imports pydantic, unless pydantic asks."""
    code = (
        "import sys, invsvc_async as i; [getattr(i, name) for name in i.__all__];"
        'hook = i.Webhook.from_json(\'{"id":"wh_1"}\'); hook.to_dict(); hook.to_json(); i.enc_hook(hook);'
        "i.Page[i.Webhook].from_json('{\"data\":[]}').to_json();"
        "from invsvc_async.events import Receiver;"
        "print([name for name in sys.modules if name.startswith('pydantic')])"
    )
    said = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout

    assert said.strip() == "[]"
