"""
Made-up teams, users and customers.

They resemble no real person, company or account, and are the same for the same seed.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from invsvc_async.simulator.json_records import Json, Record
from invsvc_async.simulator.state import Account, Book, State

if TYPE_CHECKING:
    from collections.abc import Mapping

DAY = 86_400_000  # ms
COMPANIES = ("Aceros del Norte", "Café Horizonte", "Luz y Sombra", "Mar Adentro", "Tejidos Alba")
TAX_LETTERS = "ABCDEFGHJKLMNPRSTUVWXYZ"


def new_tax_id(state: State) -> str:
    """Make a tax id in the form of a Mexican company's."""
    letters = "".join(state.random.choices(TAX_LETTERS, k=3))
    day = (
        f"{state.random.randint(0, 29):02d}{state.random.randint(1, 12):02d}{state.random.randint(1, 28):02d}"
    )
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
        {
            "id": state.new_id("cli_"),
            "name": name,
            "legal_name": name.upper(),
            "email": "pagos@cliente.example",
            "bcc": [],
            "phone": "+525500000000",
            "tax_id": new_tax_id(state),
            "tax_system": "601",
            "use": "G03",
            "address": new_address(),
            "is_valid": True,
            "efos": {"is_valid": True},
            "metadata": {},
            "livemode": book.livemode,
            "from": "api",
            "owner": "usr_1",
            "team": book.team,
            "created_at": state.clock.now_ms() - 90 * DAY,
        }
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
        {
            "id": state.new_id("usr_"),
            "email": "ana@example.com",
            "first_name": "Ana",
            "last_name": "Ejemplo",
            "phone": "+525500000002",
            "teams": [],
            "created_at": state.clock.now_ms() - 400 * DAY,
            "company_role": "accountant",
            "address": new_address(),
            **fields,
        }
    )
