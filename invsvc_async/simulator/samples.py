"""
Made-up records in the form of the specification.

They resemble no real person, company or account, and are the same for the same seed.
"""

from __future__ import annotations

import base64
import io
import uuid
import zipfile
from decimal import Decimal
from typing import TYPE_CHECKING

from invsvc_async.simulator.json_records import Json, Record
from invsvc_async.simulator.state import Account, Book, State

if TYPE_CHECKING:
    from collections.abc import Mapping

DAY = 86_400_000  # ms
COMPANIES = ("Aceros del Norte", "Café Horizonte", "Luz y Sombra", "Mar Adentro", "Tejidos Alba")
TAX_LETTERS = "ABCDEFGHJKLMNPRSTUVWXYZ"
AWKWARD = (Decimal("1234567890.123456789"), Decimal("0.1"), Decimal("10.00"), Decimal("0.000001"))


def new_tax_id(state: State) -> str:
    """Make a tax id in the form of a Mexican company's."""
    letters = "".join(state.random.choices(TAX_LETTERS, k=3))
    day = "".join(f"{state.random.randint(*each):02d}" for each in ((0, 29), (1, 12), (1, 28)))
    return f"{letters}{day}{''.join(state.random.choices('0123456789', k=3))}"


def new_address() -> dict[str, Json]:
    """Make an address in the form of teams, users and clients."""
    return {
        "street": "Avenida de las Acacias",
        "exterior": "128",
        "neighborhood": "Centro",
        "city": "Querétaro",
        "state": "Querétaro",
        "zip": "76000",
        "country": "MEX",
    }


def new_client(state: State, book: Book) -> Record:
    """Make the customer of an invoice."""
    name = state.random.choice(COMPANIES)
    return Record(
        id=state.new_id("cli_"),
        name=name,
        legal_name=name.upper(),
        email="pagos@cliente.example",
        bcc=[],
        phone="+525500000000",
        tax_id=new_tax_id(state),
        tax_system="601",
        use="G03",
        address=new_address(),
        is_valid=True,
        efos={"is_valid": True},
        metadata={},
        livemode=book.livemode,
        **{"from": "api"},
        owner="usr_1",
        team=book.team,
        created_at=state.clock.now_ms() - 90 * DAY,
    )


def new_team(
    state: State,
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
    team: dict[str, Json] = {
        "id": team_id,
        "legal_name": "EMPRESA DE EJEMPLO",
        "address": new_address(),
        "brand": {"alias": "Ejemplo", "primary_color": "#0a7cff", "secondary_color": "#ffffff", "logo": None},
        "settings": {
            "default_description": None,
            "emails": {
                "invoices_bcc": [],
                "avoid_invoice_emails": False,
                "avoid_test_invoice_emails": True,
                "avoid_receipts_emails": False,
            },
            "global_invoice_disabled": False,
            "use": "G03",
            "periodicity": {"label": "Mensual", "value": "04"},
        },
        "members": [{"id": owner, "email": "ana@example.com", "role": "admin"}],
        "owner": owner,
        "support_email": "ayuda@example.com",
        "support_phone": "+525500000001",
        "tax_id": new_tax_id(state),
        "tax_system": "601",
        "created_at": now,
        "sat": {"completed": True, "connected_at": now, "csd_expires_at": now + 1000 * DAY},
        "integrations": {"dbtable": {"completed": True, "category": "import"}},
        "metadata": {},
        "credit_limit": None,
        "used_credits": Decimal("12.5"),
        "credit_period_start": now - 5 * DAY,
        "status": "active",
        "scheduled_deletion": None,
    }
    known = {name: value for name, value in fields.items() if name in team and name != "owner"}
    known |= {name: {**team[name], **known[name]} for name in ("address", "brand") if name in known}
    if fields.get("generate_onboarding_url"):
        known["onboarding_url"] = f"https://onboarding.example/{team_id}"
    state.accounts[team_id] = Account(billing, connect=connect)
    return Record({**team, **known, "members": _members({**team, **known}, fields, master)})


def _members(
    team: Mapping[str, Json], fields: Mapping[str, Json], master: Mapping[str, Json] | None
) -> list[Json]:
    copied = master["members"] if master and fields.get("add_master_team_members") else []
    there = {member["id"] for member in team["members"]}
    added = [{"email": "invited@example.com", **member} for member in fields.get("add_members", [])]
    return [*team["members"], *(member for member in copied if member["id"] not in there), *added]


def new_user(state: State, fields: Mapping[str, Json]) -> Record:
    """Make a user."""
    return Record(
        id=state.new_id("usr_"),
        email="ana@example.com",
        first_name="Ana",
        last_name="Ejemplo",
        phone="+525500000002",
        teams=[],
        created_at=state.clock.now_ms() - 400 * DAY,
        company_role="accountant",
        address=new_address(),
    ).with_changes(fields)


def new_invoice(state: State, book: Book, fields: Mapping[str, Json]) -> Record:
    """Make an invoice, of type E by default.  Type P has zero totals and no payment codes."""
    number = len(book.invoices.items) + 1
    kind = fields.get("invoice_type", "E")
    created = state.clock.now_ms() - (0 if "idempotency_key" in fields else number * 3_600_000)
    is_plain = number > len(AWKWARD)
    subtotal = Decimal(state.random.randint(100, 10**8)).scaleb(-2) if is_plain else AWKWARD[number - 1]
    taxes = (subtotal * 16).scaleb(-2)
    folio = state.new_folio()
    invoice: dict[str, Json] = {
        "uuid": folio,
        "idempotency_key": None,
        "client": new_client(state, book),
        "created_at": created,
        "date": created,
        "currency": "MXN" if kind == "E" else "XXX",
        "exchange_rate": Decimal("1.0") if number % 5 else Decimal("17.2345"),
        **_amounts(kind, subtotal, taxes),
        "series": "E" if kind == "E" else "CP",
        "folio_number": number,
        "invoice_type": kind,
        "use": "G02" if kind == "E" else "CP01",
        "livemode": book.livemode,
        "owner": "usr_1",
        "team": book.team,
        "from": "api",
        "status": "canceled" if number % 7 == 0 else "valid",
        "payments": [],
        "invoices": [],
        "items": [_item(state, subtotal)],
        "metadata": {"order": f"A-{number}"},
        "emails": ["pagos@cliente.example"],
        "cancellation": {"motive": "02", "canceled_at": created + DAY} if number % 7 == 0 else None,
        "stamp": {"sello": base64.b64encode(folio.encode()).decode(), "stamp_at": created + 1500},
        "verification_url": f"https://verify.example/?id={folio}",
        "related_documents": [{"relationship": "01", "documents": [state.new_folio()]}],
    }
    if kind == "E":
        invoice |= {"payment_form": "03", "payment_method": "PUE" if number % 2 else "PPD"}
    return Record(invoice | dict(fields))


def _amounts(kind: Json, subtotal: Decimal, taxes: Decimal) -> dict[str, Json]:
    if kind == "P":
        return dict.fromkeys(("total", "subtotal", "discount", "taxes", "withholding_taxes"), 0)
    total = subtotal if subtotal in AWKWARD else subtotal + taxes
    return {
        "total": total,
        "subtotal": subtotal,
        "discount": 0,
        "taxes": taxes,
        "withholding_taxes": Decimal("0.00"),
    }


def _item(state: State, price: Decimal) -> dict[str, Json]:
    return {
        "id": state.new_id("item_"),
        "description": "Devolución de mercancía",
        "quantity": 1,
        "unit_price": price,
        "product_key": "84111506",
        "unit_key": "ACT",
    }


def new_journey(state: State, book: Book, fields: Mapping[str, Json]) -> Record:
    """Make a draft journey with a small graph."""
    created = state.clock.now_ms() - 10 * DAY
    node = {
        "id": "start",
        "type": "trigger",
        "position": {"x": 0, "y": Decimal("40.5")},
        "data": {"config": None},
    }
    return Record(
        id=state.new_id("jrn_"),
        name="Dunning",
        description=None,
        livemode=book.livemode,
        owner="usr_1",
        team=book.team,
        clonedFrom=None,
        created_at=created,
        last_updated=created,
        status="draft",
        version=1,
        triggerType="invoice.created",
        graph={"nodes": [node], "edges": [], "viewport": {"x": 0, "y": 0, "zoom": 1}},
        replacesDefaults=False,
        stats={"runs": 0, "errors": 0, "lastRunAt": None},
        **{"from": "api"},
        pausedReason=None,
        pausedDetail=None,
        pausedAt=None,
        groupId=None,
    ).with_changes(fields)


def new_link(state: State, book: Book, fields: Mapping[str, Json]) -> Record:
    """Make a reusable payment link."""
    now = state.clock.now_ms()
    link_id = str(fields.get("id") or state.new_id("plink"))
    return Record(
        id=link_id,
        team_id=book.team,
        livemode=book.livemode,
        status="active",
        amount=Decimal("199.90"),
        total=Decimal("231.884"),
        url=f"https://pay.example/{link_id}",
        short_url=f"https://p.example/{link_id[-6:]}",
        owner="usr_1",
        created_at=now - DAY,
        updated_at=now,
        deleted_at=None,
        revision="3",
        effect_scope="team_mode_payment_link",
        views=4,
        historical_references={
            "invoices": [],
            "receipts": [],
            "unresolved_count": 0,
            "authorization": "resolve_each_resource",
        },
        items=[{"description": "Suscripción", "quantity": 1, "unit_price": Decimal("199.90")}],
        currency="MXN",
        exchange=Decimal("1.0"),
        description="Suscripción mensual",
        metadata={},
        limitDaysToPay=5,
        automations=[{"type": "invoice", "from": "payment_link", "ref": link_id, "action": "create"}],
        custom_method_types=[{"id": "card"}],
    ).with_changes(fields)


def new_download(state: State, fields: Mapping[str, Json]) -> Record:
    """Make a completed download request of one package."""
    return Record(
        id=state.new_id("dl_"),
        request_id=str(uuid.UUID(int=state.random.getrandbits(128), version=4)),
        status="completed",
        status_code="5000",
        invoice_count=2,
        invoices_saved=2,
        invoices=[],
        packages=[{"id": state.new_id("pkg_"), "index": 1}],
        message=None,
    ).with_changes(fields)


def new_package(name: str) -> bytes:
    """Make the bytes of a package: a zip with one file, the same for the same *name*."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as package:
        package.writestr(zipfile.ZipInfo(f"{name}.xml"), "<Comprobante/>" * 50)
    return buffer.getvalue()


def new_files(name: str) -> list[Record]:
    """Make the two files of a retention."""
    kinds = (("pdf", "application/pdf", b"%PDF-1.7 example"), ("xml", "application/xml", b"<Retenciones/>"))
    return [
        Record({"content": base64.b64encode(content).decode(), "filename": f"{name}.{ending}", "type": media})
        for ending, media, content in kinds
    ]


def new_connection(state: State, book: Book) -> Record:
    """Make a spreadsheet import connection."""
    now = state.clock.now_ms()
    counts = ("read", "claimed", "imported", "adopted", "failed", "review", "skipped", "remaining")
    return Record(
        spreadsheet_id=state.new_id("sheet_"),
        spreadsheet_name="Pagos 2026",
        spreadsheet_url="https://sheets.example/1",
        sheet_name="Hoja 1",
        header_row=1,
        headers=["Cliente", "Monto", "Fecha"],
        livemode=book.livemode,
        mapping={"target": "payment", "fields": {"amount": "Monto"}},
        enabled=True,
        poll_interval_minutes=15,
        connected_by_email="ana@example.com",
        connected_at=now - 30 * DAY,
        last_sync_at=now - DAY,
        last_polled_at=now,
        last_activity_at=now - DAY,
        last_sync_summary=dict.fromkeys(counts, 3),
        last_activity_summary=dict.fromkeys(counts, 1),
        totals={"imported": 120, "adopted": 4, "failed": 1, "review": 2},
        sync_error="",
    )
