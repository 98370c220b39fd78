"""Verdicts in a journal: stored before the application has them, recovered by the next process, then removed."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import attrs
import pytest
from msgspec import Raw

from invsvc_async import (
    ApiKey,
    Client,
    ConfigurationError,
    ConflictError,
    InvsvcError,
    JournalError,
    NotFoundError,
    NotSentError,
    PermissionDeniedError,
    PersonToken,
    RateLimitedError,
    SecretLostError,
    ServiceError,
    ValidationFailedError,
    Verdict,
    WriteNotAppliedError,
    WriteSupersededError,
)
from invsvc_async.durable import removal
from invsvc_async.durable.journal import ClientJournal
from invsvc_async.reconcile.history import Evidence
from tests.batch.conftest import HOOK, client_of
from tests.durable.stores import rows_in, spoil
from tests.support.inside import store_beneath
from tests.support.waiting import until, until_no


@pytest.fixture
def at_once(monkeypatch):
    """Remove verdicts that the application has had without a delay."""
    monkeypatch.setattr(removal, "_HEARD_AFTER", 0)


@pytest.fixture
def never(monkeypatch):
    """Remove verdicts that the application has had only when the journal is closed."""
    monkeypatch.setattr(removal, "_HEARD_AFTER", 10**6)


@pytest.fixture
async def applied(service, client):
    """Return the outcome of an update that was answered."""
    return await client.webhooks.update(
        service.seed_webhook().id, description="new"
    ).outcome()


async def unfinished(journal, outcome):
    """Do what a driver does for a write, up to its verdict, which the application has not had yet."""
    intent = outcome.intent
    *before, last = intent.sent
    await journal.open()
    await journal.sending(
        attrs.evolve(intent, sent=(*before, attrs.evolve(last, end=None)))
    )
    await journal.settled(outcome)


def named(outcome, key, **changes):
    """Return *outcome* as that of another write, with *key*."""
    return attrs.evolve(
        outcome, started_as=attrs.evolve(outcome.started_as, key=key, **changes)
    )


def unknown(outcome):
    """Return *outcome* as one that nothing has shown."""
    return attrs.evolve(outcome, verdict=Verdict.UNKNOWN, value=None)


async def ended(path, *outcomes):
    """Run a process that ends before the application has had its verdicts."""
    journal = ClientJournal(path)
    for outcome in outcomes:
        await unfinished(journal, outcome)
    await journal.aclose()


async def held(journal):
    """Return what a journal contains from earlier processes: keys of open intents, and outcomes."""
    keys = [intent.key async for intent in journal.open_intents()]
    return keys, [outcome async for outcome in journal.unheard()]


async def next_process(path, *, hears=False):
    journal = ClientJournal(path)
    await journal.open()
    try:
        found = await held(journal)
        if hears:
            for identity in [
                *found[0],
                *(outcome.started_as.identity for outcome in found[1]),
            ]:
                journal.heard(identity)
        return found
    finally:
        await journal.aclose()


async def rebuilt(path, outcome):
    """Return *outcome* as the next process gets it."""
    await ended(path, outcome)
    keys, [found] = await next_process(path)
    assert keys == []
    return found


def same(found, live):
    """Compare all of an outcome that outlives its process: also what it raises, and from what."""
    for name in (
        "verdict",
        "message",
        "value",
        "attempts",
        "resends",
        "livemode",
        "applied",
    ):
        assert getattr(found, name) == getattr(live, name), name
    assert found.evidence.basis == live.evidence.basis
    for name in (
        "status",
        "code",
        "message",
        "details",
        "operation",
        "own_envelope",
        "retry_after",
    ):
        assert getattr(found.error, name, None) == getattr(live.error, name, None), name
    assert [described(found.error), raised(found)] == [
        described(live.error),
        raised(live),
    ]
    for intent in (found.intent, live.intent):
        assert intent.policy == live.intent.policy
    assert [sent.end.kind for sent in found.intent.sent] == [
        sent.end.kind for sent in live.intent.sent
    ]
    apart = {"sent": (), "bounds": None}  # a plain answer's times are not stored
    assert attrs.evolve(found.intent, **apart) == attrs.evolve(live.intent, **apart)
    assert found.history == ()
    return True


def described(error):
    return type(error), str(error)


def raised(outcome):
    """Return what unwrapping raises, as class and words, and what that comes from."""
    try:
        outcome.unwrap()
    except InvsvcError as error:
        return *described(error), *described(error.__cause__)


# --- what the next process gets


WRITES = {
    "webhooks.update": lambda service, client: client.webhooks.update(
        service.seed_webhook().id, description="new"
    ),
    "webhooks.delete": lambda service, client: client.webhooks.delete(
        service.seed_webhook().id
    ),
    "journeys.update": lambda service, client: client.journeys.update(
        service.seed_journey(status="draft").id, name="new"
    ),
    "teams.create": lambda _service, client: client.teams.create(
        legal_name="Acme", credit_limit=3
    ),
    "sheets.save_mapping": lambda _service, client: client.sheets.save_mapping(
        {"total": "Total"}
    ),
    "users.update_preferences": lambda _service, client: (
        client.users.update_preferences("team_1", testmode=True)
    ),
    "client.write": lambda service, client: client.write(
        "PUT", f"/webhooks/{service.seed_webhook().id}", json={"description": "new"}
    ),
}


@pytest.mark.parametrize("operation", WRITES)
async def test_applied_write_is_rebuilt(service, tmp_path, operation):
    """Verdict, evidence, value and intent of each operation's write are those of the live outcome."""
    person = operation.startswith("users")
    credential = (
        PersonToken(service.person_token) if person else ApiKey(service.api_key)
    )
    async with client_of(service, credential=credential) as client:
        live = await WRITES[operation](service, client).outcome()

    found = await rebuilt(tmp_path / "journal.db", live)

    assert live.verdict is Verdict.APPLIED
    assert same(found, live)
    assert type(found.value) is type(live.value)
    assert found.unwrap() == live.unwrap()
    assert found.error is None


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("400", ValidationFailedError),
        ("403", PermissionDeniedError),
        ("404", NotFoundError),
        ("409", ConflictError),
        ("422", ServiceError),
        ("429", RateLimitedError),
        ("gateway 403", PermissionDeniedError),
        ("500", WriteNotAppliedError),
    ],
)
async def test_write_that_failed_is_rebuilt(service, client, tmp_path, status, kind):
    """It raises an error of the same class, with the same words, status and code, from the failure that was seen."""
    service.script("webhooks.update", status)
    write = client.webhooks.update(service.seed_webhook().id, description="new")
    live = await write.with_policy(resend="never").outcome()

    found = await rebuilt(tmp_path / "journal.db", live)

    assert live.verdict is (Verdict.NOT_APPLIED if status == "500" else Verdict.REFUSED)
    assert same(found, live)
    assert raised(found)[0] is kind


class OwnError(InvsvcError):
    """An error that a user-supplied credential may raise."""


DETAILS = (
    "one text",
    ("url: is missing", "events: is empty"),
    {"url": ["is missing", 1, None]},
    None,
)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        *(
            (
                ValidationFailedError(
                    status=400, message="No.", details=each, own_envelope=True
                ),
                ...,
            )
            for each in DETAILS
        ),
        (ConfigurationError("no token: log in"), ...),
        (OwnError("no token: log in"), InvsvcError),
    ],
    ids=repr,
)
async def test_error_is_rebuilt(applied, tmp_path, error, kind):
    """Its class comes back if it is of the package, its words always, and details in each of their forms."""
    live = attrs.evolve(applied, verdict=Verdict.REFUSED, value=None, error=error)
    found = (await rebuilt(tmp_path / "journal.db", live)).error
    assert (type(found), str(found)) == (
        type(error) if kind is ... else kind,
        str(error),
    )
    assert getattr(found, "details", None) == getattr(error, "details", None)


@pytest.mark.no_secret_scan  # which shows things as JSON
async def test_text_that_utf8_cannot_express_is_stored(applied, tmp_path):
    """Half a character becomes a question mark, and what is beside it is kept; a reader's reason may have one, too."""
    error = ValidationFailedError(
        status=400, code="a\ud800", message="b\ud800", details=["c\ud800"]
    )
    refused = attrs.evolve(applied, verdict=Verdict.REFUSED, value=None, error=error)
    unlike = attrs.evolve(
        applied,
        verdict=Verdict.SUPERSEDED,
        message="d\ud800",
        value=None,
        evidence=Evidence(basis="reader"),
    )

    found = await rebuilt(tmp_path / "one.db", refused)
    other = await rebuilt(tmp_path / "two.db", unlike)

    assert (found.error.code, found.error.message, found.error.details) == (
        "a?",
        "b?",
        None,
    )
    assert other.message == "d?"


async def test_write_that_never_left_is_rebuilt(tmp_path):
    """Its cause is the NotSentError, with its words."""
    async with Client("http://127.0.0.1:1/v2", ApiKey("key-of-nobody")) as client:
        live = await client.webhooks.delete("wh_1").outcome()

    found = await rebuilt(tmp_path / "journal.db", live)

    assert (live.verdict, type(found.error)) == (Verdict.NOT_APPLIED, NotSentError)
    assert same(found, live)


async def test_error_that_json_cannot_express_leaves_the_value(applied, tmp_path):
    """Only what has no JSON form is left out."""
    error = OwnError("no token: log in")
    error.details = object()
    found = await rebuilt(tmp_path / "journal.db", attrs.evolve(applied, error=error))
    assert (str(found.error), found.value) == (str(error), applied.value)


async def test_write_that_was_sent_again_is_rebuilt(service, client, tmp_path):
    """How often it was sent comes back."""
    service.script("webhooks.update", "500")
    live = await client.webhooks.update(
        service.seed_webhook().id, description="new"
    ).outcome()
    found = await rebuilt(tmp_path / "journal.db", live)
    assert same(found, live)
    assert (found.attempts, found.resends) == (2, 1)


async def test_superseded_write_is_rebuilt(applied, tmp_path):
    """WriteSupersededError is raised, with the reason."""
    evidence = Evidence(basis="baseline")
    live = attrs.evolve(
        applied,
        verdict=Verdict.SUPERSEDED,
        message="why",
        evidence=evidence,
        value=None,
    )
    found = await rebuilt(tmp_path / "journal.db", live)
    assert same(found, live)
    assert raised(found)[0] is WriteSupersededError


async def test_lost_secret_and_duplicates_are_rebuilt(service, client, tmp_path):
    """Ids of duplicates come back; that they are not known does too."""
    service.script("webhooks.create", "apply, then hang")
    live = await client.webhooks.create(**HOOK, tag=True).outcome()
    assert (live.verdict, live.secret_lost) == (Verdict.APPLIED, True)
    two = attrs.evolve(
        live,
        evidence=attrs.evolve(live.evidence, duplicates=({"id": "wh_2", "url": "x"},)),
    )
    evidence = attrs.evolve(
        live.evidence, duplicates=None, candidates=({"id": "wh_3"},)
    )
    unknown = attrs.evolve(live, evidence=evidence)

    found = await rebuilt(tmp_path / "one.db", live)
    assert same(found, live)
    assert (found.secret_lost, found.evidence.duplicates) == (True, ())
    with pytest.raises(SecretLostError):
        found.unwrap()
    found = await rebuilt(tmp_path / "two.db", two)
    assert found.evidence.duplicates == ({"id": "wh_2"},)
    found = await rebuilt(tmp_path / "unknown.db", unknown)
    assert (found.evidence.duplicates, found.evidence.candidates) == (
        None,
        ({"id": "wh_3"},),
    )


DIGITS = {
    "total": Decimal("12345678901234567890.1234567890"),
    "many": 2**70,
    "none": None,
    "list": ["é"],
}


@pytest.mark.parametrize(
    ("value", "basis", "kept"),
    [
        (object(), "reader", None),
        ({"at": float("nan")}, "reader", None),
        ({"text": "\ud800"}, "reader", None),
        ("plain text", "reader", "plain text"),
        ("plain text", "equal", "plain text"),
        ("plain text", "answered", "plain text"),
        (DIGITS, "answered", DIGITS),
    ],
)
async def test_plain_value_is_rebuilt(applied, tmp_path, value, basis, kept):
    """With each digit; one that JSON cannot express is left out, and the verdict comes all the same."""
    intent = attrs.evolve(
        applied.intent,
        operation="client.write",
        path={"method": "POST", "path": "/things"},
    )
    live = attrs.evolve(
        applied,
        started_as=intent,
        history=(),
        value=value,
        evidence=Evidence(basis=basis),
    )
    found = await rebuilt(tmp_path / "journal.db", live)
    assert (found.verdict, repr(found.value)) == (Verdict.APPLIED, repr(kept))


async def test_many_verdicts_come_in_their_order(applied, tmp_path):
    """More than are read at once come all, oldest first, beside open intents."""
    many = [named(applied, f"key-{n}") for n in range(600)]
    for number in range(0, 600, 7):
        many[number] = unknown(many[number])
    path = tmp_path / "journal.db"
    await ended(path, *many)

    keys, outcomes = await next_process(path)

    assert keys == [f"key-{n}" for n in range(0, 600, 7)]
    assert [outcome.started_as.key for outcome in outcomes] == [
        f"key-{n}" for n in range(600) if n % 7
    ]


# --- what is removed, and when


@pytest.mark.parametrize("when", ["at_once", "never"])
@pytest.mark.parametrize("then", ["nothing", "sending", "settled", "sending before"])
async def test_heard_verdict_goes_unless_its_key_is_used_again(
    request, applied, tmp_path, when, then
):
    """It goes at once, or with the close; not what comes under its key before that."""
    request.getfixturevalue(when)
    path, key = tmp_path / "journal.db", applied.started_as.key
    journal = ClientJournal(path)
    await unfinished(journal, applied)
    if then == "sending before":
        await journal.sending(applied.intent)
    journal.heard(key)
    if then == "sending":
        await journal.sending(applied.intent)
    elif then == "settled":
        await journal.settled(applied)
    for _ in range(20):
        await asyncio.sleep(0)
    await journal.aclose()
    assert rows_in(path) == {"nothing": [], "settled": [(key, 2)]}.get(then, [(key, 1)])
    keys, outcomes = await next_process(path)
    assert [*keys, *(each.started_as.key for each in outcomes)] == [key] * (
        then != "nothing"
    )


async def test_verdict_that_was_heard_in_a_period_stays_for_the_next(
    applied, tmp_path, monkeypatch
):
    """Otherwise it could go at once, before tasks pass it on."""
    periods, path = asyncio.Semaphore(0), tmp_path / "journal.db"
    # reaches: its periods end when the test says so
    monkeypatch.setattr(removal, "set_within", lambda *_: periods.acquire())
    journal = ClientJournal(path)
    outcomes = [named(applied, key) for key in "ab"]
    for outcome in outcomes:
        await unfinished(journal, outcome)
        journal.heard(outcome.started_as.key)
        await asyncio.sleep(0)
    for left in (["b"], []):
        periods.release()
        await until(lambda left=left: len(rows_in(path)) <= len(left))
        assert [key for key, _ in rows_in(path)] == left
    await journal.aclose()


async def test_verdicts_heard_together_are_removed_together(
    applied, tmp_path, monkeypatch
):
    """That takes one request to the writer in each period, or one for 256 of them."""
    monkeypatch.setattr(removal, "_HEARD_AFTER", 0.001)
    journal = ClientJournal(tmp_path / "journal.db")
    await journal.open()
    keys = [f"key-{n}" for n in range(300)]
    outcomes = [named(applied, key) for key in keys]
    for outcome in outcomes:
        await unfinished(journal, outcome)
    asked, ask = [], store_beneath(journal).rows
    monkeypatch.setattr(
        store_beneath(journal),
        "rows",
        lambda *values: asked.append(values) or ask(*values),
    )
    for key in keys:
        journal.heard(key)
    await until_no(lambda: rows_in(store_beneath(journal).path))
    assert len(asked) == 2
    await journal.aclose()
    assert not journal._writes


async def test_recovery_that_is_cut_off_keeps_its_verdicts(applied, tmp_path):
    """Verdicts found by recovering come again in the same process, until the application has had them."""
    path = tmp_path / "journal.db"
    open_, done = named(applied, "open"), named(applied, "done")
    await ended(path, unknown(open_), done)

    journal = ClientJournal(path)
    for _ in range(2):
        keys, outcomes = await held(journal)
        assert (keys, [each.started_as.key for each in outcomes]) == (
            ["open"],
            ["done"],
        )
        journal.heard("open")  # it is not: nothing is known of it
    await journal.settled(open_)
    keys, outcomes = await held(journal)
    assert (keys, [each.started_as.key for each in outcomes]) == ([], ["open", "done"])
    journal.heard("open")
    journal.heard("done")
    assert await held(journal) == ([], [])
    await journal.aclose()
    assert rows_in(path) == []


async def test_leftover_that_is_sent_again_during_a_recovery(applied, tmp_path):
    """It is this process's own from then on: a recovery that has read its entry before leaves it out."""
    path = tmp_path / "journal.db"
    first, second = (named(unknown(applied), key) for key in ("first", "second"))
    await ended(path, first, second)
    journal = ClientJournal(path)
    found = []
    async for intent in journal.open_intents():
        found.append(intent.key)
        await journal.sending(second.intent)
    await journal.aclose()
    assert found == ["first"]


async def test_recovered_intent_that_is_unknown_comes_once_in_a_process(
    applied, tmp_path
):
    """It is not recovered again by the process that found nothing, but by the next one."""
    path, key = tmp_path / "journal.db", applied.started_as.key
    await ended(path, unknown(applied))

    journal = ClientJournal(path)
    assert (await held(journal))[0] == [key]
    await journal.settled(unknown(applied))
    assert await held(journal) == ([], [])
    await journal.aclose()
    assert await next_process(path) == ([key], [])


async def test_writes_of_one_key_are_kept_apart(applied, tmp_path):
    """One that is sent under a key that the user gave before replaces neither an open intent nor a verdict."""
    path = tmp_path / "journal.db"
    first, second, third = (named(applied, "row 1", nonce=nonce) for nonce in "abc")
    await ended(path, unknown(first), second)
    journal = ClientJournal(path)
    await unfinished(journal, third)
    journal.heard(third.started_as.identity)
    [intent] = [intent async for intent in journal.open_intents()]
    [outcome] = [outcome async for outcome in journal.unheard()]
    assert (intent.key, intent.nonce) == ("row 1", "a")
    assert (outcome.started_as.key, outcome.intent.nonce) == ("row 1", "b")
    await journal.settled(attrs.evolve(first, started_as=intent, history=()))
    await journal.aclose()
    keys, outcomes = await next_process(path, hears=True)
    assert keys == []
    assert [each.started_as.identity for each in outcomes] == ["row 1 a", "row 1 b"]
    assert rows_in(path) == []


@pytest.mark.parametrize("sent", [False, True])
@pytest.mark.parametrize("process", ["same", "next"])
async def test_write_cancelled_after_its_verdict_keeps_it(
    applied, tmp_path, sent, process
):
    """A cancellation while the verdict was being stored, or by who settles it anew, does not undo it."""
    path = tmp_path / "journal.db"
    journal = ClientJournal(path)
    await unfinished(journal, applied)
    if process == "next":
        await journal.aclose()
        journal = ClientJournal(path)
        await journal.open()
    journal.shelved(applied.intent, sent=sent)
    await journal.aclose()
    keys, [found] = await next_process(path)
    assert (keys, found.verdict) == ([], Verdict.APPLIED)


@pytest.mark.parametrize("verdict", [Verdict.UNKNOWN, Verdict.APPLIED])
async def test_leftover_that_is_sent_again_is_of_this_process(
    applied, tmp_path, verdict
):
    """It is not recovered while it is under way here; if this process ends, it is left to the next one."""
    path = tmp_path / "journal.db"
    await ended(path, attrs.evolve(applied, verdict=verdict))
    journal = ClientJournal(path)
    await journal.sending(applied.intent)
    assert await held(journal) == ([], [])
    await journal.aclose()
    assert await next_process(path) == ([applied.started_as.key], [])


async def test_leftover_that_is_marked_is_still_recovered(applied, tmp_path):
    """An open intent of an earlier process that is noted anew, as overtaken, is that process's still."""
    path = tmp_path / "journal.db"
    await ended(path, unknown(applied))
    journal = ClientJournal(path)
    [intent] = [intent async for intent in journal.open_intents()]
    marked = attrs.evolve(intent, strangers=("wh_marked",))
    journal.shelved(marked, sent=True)
    assert [intent async for intent in journal.open_intents()] == [marked]
    await journal.aclose()


async def test_verdict_returned_right_before_the_close_is_removed(applied, tmp_path):
    """Its hearing is noted with the next turn of the event loop, and the close waits for that."""
    journal = ClientJournal(tmp_path / "journal.db")
    await unfinished(journal, applied)
    asyncio.get_running_loop().call_soon(journal.heard, applied.started_as.identity)
    await journal.aclose()
    assert rows_in(tmp_path / "journal.db") == []


async def test_heard_is_safe_at_any_time(applied, tmp_path):
    """Before the opening, after the close and of a key that is not there, it changes nothing."""
    path, key = tmp_path / "journal.db", applied.started_as.key
    journal = ClientJournal(path)
    journal.heard(key)
    await unfinished(journal, applied)
    journal.heard("another")
    await journal.aclose()
    journal.heard(key)
    assert journal._removal.task is None
    assert rows_in(path) == [(key, 2)]


# --- what else may be in the way


async def test_no_secret_is_in_the_file(service, client, tmp_path):
    """Neither a token, nor an answer's, nor one deep in plain data, nor one in an error's details."""
    live = await client.webhooks.create(**HOOK).outcome()
    secrets = [
        service.api_key,
        live.value.secret,
        "whsec_plain",
        "whsec_deep",
        "whsec_details",
    ]
    assert live.value.secret.startswith("whsec_")
    plain = {
        "secret": "whsec_plain",
        "hooks": [{"id": "wh_plain", "secret": "whsec_deep"}],
    }
    intent = attrs.evolve(
        live.intent,
        key="plain",
        operation="client.write",
        path={"method": "POST", "path": "/x"},
    )
    error = ConflictError(
        status=409, details={"hook": {"id": "wh_details", "secret": "whsec_details"}}
    )
    outcomes = [
        live,
        attrs.evolve(live, started_as=intent, history=(), value=plain, secret=None),
        attrs.evolve(
            live,
            started_as=attrs.evolve(intent, key="refused"),
            history=(),
            verdict=Verdict.REFUSED,
            value=None,
            error=error,
        ),
    ]
    journal = ClientJournal(tmp_path / "journal.db")
    for outcome in outcomes:
        await unfinished(journal, outcome)
    content = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    await journal.aclose()
    content += b"".join(file.read_bytes() for file in tmp_path.iterdir())

    assert [secret for secret in secrets if secret.encode() in content] == []
    assert all(
        text in content for text in (live.value.id.encode(), b"wh_plain", b"wh_details")
    )
    _, [created, written, refused] = await next_process(tmp_path / "journal.db")
    assert (created.secret_lost, written.secret_lost) == (True, False)
    assert refused.error.details == {"hook": {"id": "wh_details"}}


async def test_part_of_a_value_that_cannot_be_decoded_is_left_out(
    service, client, tmp_path
):
    """A part in raw form could hide a secret: it becomes null, and the rest is kept."""
    live = await client.webhooks.create(**HOOK).outcome()
    odd = attrs.evolve(
        live, value={"id": "wh_1", "rest": [Raw(b'{"secret":"whsec_raw"}')]}
    )
    found = await rebuilt(tmp_path / "journal.db", odd)
    assert (found.value.id, found.value.extra) == ("wh_1", {"rest": [None]})
    assert b"whsec_raw" not in (tmp_path / "journal.db").read_bytes()


@pytest.mark.parametrize("hears", [False, True])
async def test_verdict_that_cannot_be_stored(applied, tmp_path, caplog, hears):
    """A full disk is logged; the write stays open in the file for the next process, or goes with the hearing."""
    path, key = tmp_path / "journal.db", applied.started_as.key
    journal = ClientJournal(path)
    await journal.sending(applied.intent)
    await store_beneath(journal).ask(
        lambda connection: connection.execute("PRAGMA max_page_count = 1").fetchone()
    )
    big = {"text": "x" * 100_000}
    await journal.settled(
        attrs.evolve(applied, value=big, evidence=Evidence(basis="reader"))
    )
    assert "its verdict is not stored" in caplog.text
    assert "disk is full" in caplog.text
    if hears:
        journal.heard(key)
    await journal.aclose()
    assert await next_process(path) == ([key] * (not hears), [])


NO_INTENTS = (
    "''",
    "'[]'",
    "'{}'",
    """'{"operation":"webhooks.list"}'""",
    """'{"more":1}'""",
)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *(
            ("open intent", value)
            for value in ("NULL", "'{}'", "x'00'", "CAST(x'80ff' AS TEXT)")
        ),
        ("verdict", "NULL"),
        ("verdict", "'other'"),
        ("outcome", "NULL"),
        ("outcome", "'x'"),
        ("outcome", "'[]'"),
        ("outcome", """'{"value":5,"basis":5}'"""),
        ("outcome", "x'80ff'"),
        ("intent", "NULL"),
        *(("intent", value) for value in NO_INTENTS),
        ("common", "NULL"),
        ("common", "99"),
    ],
)
async def test_row_that_is_damaged_is_told_in_words(applied, tmp_path, column, value):
    """A row with an invalid value raises JournalError with the key or the path, and no other exception."""
    path = tmp_path / "journal.db"
    await ended(path, unknown(applied) if column == "open intent" else applied)
    spoil(path, f"UPDATE entries SET {column.removeprefix('open ')} = {value}")
    with pytest.raises(
        JournalError, match=rf"entry '{applied.started_as.key}' |journal\.db"
    ):
        await next_process(path)


async def test_key_that_is_damaged_is_told_in_words_each_time(applied, tmp_path):
    """A file that cannot be opened is let go of: the next attempt says the same, and not that it is in use."""
    path = tmp_path / "journal.db"
    await ended(path, applied)
    spoil(path, "UPDATE entries SET key = CAST(x'80ff' AS TEXT)")
    journal = ClientJournal(path)
    for _ in range(2):
        with pytest.raises(JournalError, match=r"journal\.db: .*UTF-8"):
            await journal.open()
