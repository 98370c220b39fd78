"""
Made-up records in the form of the specification.

``samples.json`` has their fields, and marks for a new id (``@id PREFIX``), a time (``@day DAYS``, from
today), an address and a tax id.  What is null there and differs from record to record is filled in here.
They resemble no real person, company or account, and are the same for the same seed.
"""

from __future__ import annotations

import base64
import io
import zipfile
from decimal import Decimal
from importlib.resources import files
from typing import TYPE_CHECKING

from invsvc_async.simulator.json_records import Json, Record, read_json
from invsvc_async.simulator.state import Account, Book, ServiceState

if TYPE_CHECKING:
    from collections.abc import Mapping

DAY = 86_400_000  # ms
COMPANIES = (
    "Aceros del Norte",
    "Café Horizonte",
    "Luz y Sombra",
    "Mar Adentro",
    "Tejidos Alba",
)
TAX_LETTERS = "ABCDEFGHJKLMNPRSTUVWXYZ"
FORMS: Json = read_json(
    files("invsvc_async.simulator").joinpath("samples.json").read_bytes()
)
AWKWARD = (
    Decimal("1234567890.123456789"),
    Decimal("0.1"),
    Decimal("10.00"),
    Decimal("0.000001"),
)


def sample(
    state: ServiceState,
    kind: str,
    book: Book | None = None,
    fields: Mapping[str, Json] | None = None,
    **own: Json,
) -> Record:
    """Make a record as in ``samples.json``, of the team and mode of *book*, with *own* and then *fields*."""
    if book is not None:
        own |= {"livemode": book.livemode, "team": book.team}
    now = state.clock.now_ms()
    found = {**FORMS[kind], **own}
    for name, value in found.items():
        if name in own or not isinstance(value, str):
            continue
        match value.split():
            case ["@id", prefix]:
                found[name] = state.new_id(prefix)
            case ["@day", days]:
                found[name] = now + int(days) * DAY
            case ["@tax_id"]:
                found[name] = new_tax_id(state)
            case ["@address"]:
                found[name] = sample(state, "address")
            case _:
                pass
    return Record({**found, **(fields or {})})


def new_tax_id(state: ServiceState) -> str:
    """Make a tax id in the form of a Mexican company's."""
    letters = "".join(state.random.choices(TAX_LETTERS, k=3))
    day = "".join(
        f"{state.random.randint(*each):02d}" for each in ((0, 29), (1, 12), (1, 28))
    )
    return f"{letters}{day}{''.join(state.random.choices('0123456789', k=3))}"


def new_client(state: ServiceState, book: Book) -> Record:
    """Make the customer of an invoice."""
    name = state.random.choice(COMPANIES)
    return sample(state, "client", book, name=name, legal_name=name.upper())


def new_team(
    state: ServiceState,
    fields: Mapping[str, Json],
    *,
    owner: str,
    billing: str,
    connect: bool = False,
    master: Mapping[str, Json] | None = None,
) -> Record:
    """Make a team of *master*'s account; *fields* are those of the create operation, or of a team."""
    team_id = str(fields.get("id") or state.new_id("team_"))
    now = state.clock.now_ms()
    team = sample(
        state,
        "team",
        id=team_id,
        owner=owner,
        members=[{"id": owner, "email": "ana@example.com", "role": "admin"}],
        sat={
            "completed": True,
            "connected_at": now,
            "csd_expires_at": now + 1000 * DAY,
        },
    )
    known: dict[str, Json] = {
        n: value for n, value in fields.items() if n in team and n != "owner"
    }
    for name in ("address", "brand"):
        if name in known:
            known[name] = {**team[name], **known[name]}
    if fields.get("generate_onboarding_url"):
        known["onboarding_url"] = f"https://onboarding.example/{team_id}"
    state.accounts[team_id] = Account(billing, connect=connect)
    copied: list[Json] = []
    if master and fields.get("add_master_team_members"):
        copied = master["members"]
    known["members"] = _members(
        {**team, **known}["members"], copied, fields.get("add_members", [])
    )
    return team.with_changes(known)


def _members(
    own: list[Json],
    copied: list[Json],
    invited: list[Json],
) -> list[Json]:
    """Return the members of a new team; those *copied* from the master are not repeated."""
    there = {member["id"] for member in own}
    new = [member for member in copied if member["id"] not in there]
    return [
        *own,
        *new,
        *({"email": "invited@example.com", **member} for member in invited),
    ]


def new_invoice(
    state: ServiceState,
    book: Book,
    fields: Mapping[str, Json],
) -> Record:
    """Make an invoice, of type E by default.  Type P has zero totals and no payment codes."""
    number = len(book.invoices.items) + 1
    kind = fields.get("invoice_type", "E")
    is_egress = kind == "E"
    codes: dict[str, Json] = {"currency": "MXN", "series": "E", "use": "G02"}
    if not is_egress:
        codes = {"currency": "XXX", "series": "CP", "use": "CP01"}
    created = state.clock.now_ms()
    if "idempotency_key" not in fields:
        created -= number * 3_600_000
    is_plain = number > len(AWKWARD)
    if is_plain:
        price = Decimal(state.random.randint(100, 10**8)).scaleb(-2)
    else:
        price = AWKWARD[number - 1]
    folio = state.new_folio()
    invoice = sample(
        state,
        "invoice",
        book,
        uuid=folio,
        client=new_client(state, book),
        created_at=created,
        date=created,
        exchange_rate=Decimal("1.0") if number % 5 else Decimal("17.2345"),
        folio_number=number,
        invoice_type=kind,
        items=[sample(state, "item", unit_price=price)],
        metadata={"order": f"A-{number}"},
        stamp={
            "sello": base64.b64encode(folio.encode()).decode(),
            "stamp_at": created + 1500,
        },
        verification_url=f"https://verify.example/?id={folio}",
        related_documents=[{"relationship": "01", "documents": [state.new_folio()]}],
        **codes,
    )
    if number % 7 == 0:
        invoice |= {
            "status": "canceled",
            "cancellation": {"motive": "02", "canceled_at": created + DAY},
        }
    if kind != "P":
        taxes = (price * 16).scaleb(-2)
        total = price if price in AWKWARD else price + taxes
        invoice |= {
            "total": total,
            "subtotal": price,
            "taxes": taxes,
            "withholding_taxes": Decimal("0.00"),
        }
    if is_egress:
        invoice |= {
            "payment_form": "03",
            "payment_method": "PUE" if number % 2 else "PPD",
        }
    return invoice.with_changes(fields)


def new_package(name: str) -> bytes:
    """Make the bytes of a package: a zip with one file, the same for the same *name*."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as package:
        package.writestr(zipfile.ZipInfo(f"{name}.xml"), "<Comprobante/>" * 50)
    return buffer.getvalue()


def new_files(name: str) -> list[Record]:
    """Make the two files of a retention."""
    kinds = (
        ("pdf", "application/pdf", b"%PDF-1.7 example"),
        ("xml", "application/xml", b"<Retenciones/>"),
    )
    return [
        Record(
            {
                "content": base64.b64encode(content).decode(),
                "filename": f"{name}.{ending}",
                "type": media,
            }
        )
        for ending, media, content in kinds
    ]
