"""
The methods of `Simulator` that add records, or change records as somebody else would.

They do not use the socket, so they do not count as arrivals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from invsvc_async.simulator import samples
from invsvc_async.simulator.json_records import Json, Record
from invsvc_async.simulator.ledger import Entry, Ledger
from invsvc_async.simulator.state import Book, ServiceState, Subscription

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


BILLING = "acct_1"
RETENTION = "11111111-1111-4111-8111-111111111111"
REMINDER = ("pay_1", "22222222-2222-4222-8222-222222222222")  # payment, operation


class Seeding:
    """Methods that add or change records in the service's state, immediately."""

    team: str
    ledger: Ledger
    _state: ServiceState

    @property
    def teams(self) -> list[str]:
        """The ids of all teams, beginning with the managing one."""
        return list(self._state.teams.items)

    def book(self, *, team: str | None = None, livemode: bool = True) -> Book:
        """Return the records of a team in one data mode, to inspect (`book().webhooks.items`)."""
        return self._state.book(team or self.team, livemode=livemode)

    def seed_team(
        self,
        *,
        connected: bool = True,
        connect: bool = False,
        features: Sequence[str] = ("multipleIssuerAccounts", "suppliers"),
        **fields: Json,
    ) -> Record:
        """Make a team.  A *connected* team shares the billing account; *connect* makes a managing team."""
        billing = BILLING if connected else self._state.new_id("acct_")
        team = samples.new_team(
            self._state,
            fields,
            owner="usr_1",
            billing=billing,
            connect=connect,
        )
        self._state.accounts[team.id].features = set(features)
        return self._state.teams.seed(team)

    def set_features(self, team: str, *features: str, api_access: bool = True) -> None:
        """Change what a team's plan includes."""
        self._state.accounts[team].features = set(features)
        self._state.accounts[team].api_access = api_access

    def seed_user(self, **fields: Json) -> Record:
        """Make a user of the default team."""
        return self._state.users.seed(
            samples.sample(self._state, "user", fields=fields, teams=[self.team])
        )

    def seed_webhook(
        self,
        *,
        url: str = "https://receiver.example/in",
        events: Sequence[str] = ("invoice.created",),
        description: str | None = None,
        status: str = "active",
        secret: str | None = None,
        team: str | None = None,
        livemode: bool = True,
        **fields: Json,
    ) -> Record:
        """Make a webhook, as if it had always existed; its events are signed with *secret*."""
        book = self.book(team=team, livemode=livemode)
        told = {} if description is None else {"description": description}
        hook = {
            "id": self._state.new_id("wh_"),
            "url": url,
            "events": list(events),
            "status": status,
            **told,
        }
        made = {
            "owner": "usr_1",
            "created_at": self._state.clock.now_ms() - samples.DAY,
        }
        record = book.webhooks.seed(Record(hook | made | fields))
        book.receivers[record.id] = Subscription(secret or self._state.new_id("whsec_"))
        return record

    def secret_of(
        self,
        webhook_id: str,
        *,
        team: str | None = None,
        livemode: bool = True,
    ) -> str:
        """Return the secret of a webhook, which only a create shows."""
        return self.book(team=team, livemode=livemode).receivers[webhook_id].secret

    def seed_journey(
        self,
        *,
        team: str | None = None,
        livemode: bool = True,
        published: Mapping[str, Json] | None = None,
        **fields: Json,
    ) -> Record:
        """Make a journey, by default a draft.  *published* has the fields that differ in its snapshot."""
        book = self.book(team=team, livemode=livemode)
        journey = samples.sample(self._state, "journey", book, fields)
        if journey["status"] != "draft":
            book.published[journey.id] = journey.with_changes(published or {})
        return book.journeys.seed(journey)

    def seed_invoice(
        self, *, team: str | None = None, livemode: bool = True, **fields: Json
    ) -> Record:
        """Make an invoice of type E, or of another `invoice_type`."""
        book = self.book(team=team, livemode=livemode)
        return book.invoices.seed(
            samples.new_invoice(self._state, book, fields), "uuid"
        )

    def seed_invoices(
        self, n: int, *, team: str | None = None, livemode: bool = True, **fields: Json
    ) -> list[Record]:
        """Make *n* invoices that differ only in ids, folios and the like."""
        return [
            self.seed_invoice(team=team, livemode=livemode, **fields) for _ in range(n)
        ]

    def seed_download(
        self, *, team: str | None = None, livemode: bool = True, **fields: Json
    ) -> Record:
        """Make a download request, by default completed, and its packages."""
        book = self.book(team=team, livemode=livemode)
        request = self._state.new_folio().lower()
        packages = [{"id": self._state.new_id("pkg_"), "index": 1}]
        made = {"request_id": request, "packages": packages, **fields}
        download = samples.sample(self._state, "download", fields=made)
        for package in download["packages"]:
            book.packages[package["id"]] = samples.new_package(package["id"])
        return book.downloads.seed(download, "request_id")

    def seed_retention(
        self,
        retention_id: str | None = None,
        *,
        team: str | None = None,
        livemode: bool = True,
    ) -> Record:
        """Make a stamped retention with a PDF and an XML.  Return its id and files."""
        retention = retention_id or self._state.new_folio().lower()
        files = self.book(team=team, livemode=livemode).retentions[retention] = (
            samples.new_files(retention)
        )
        return Record(id=retention, files=files)

    def seed_link(
        self, *, team: str | None = None, livemode: bool = True, **fields: Json
    ) -> Record:
        """Make a reusable payment link."""
        link_id = str(fields.get("id") or self._state.new_id("plink"))
        book = self.book(team=team, livemode=livemode)
        link = samples.sample(
            self._state,
            "link",
            fields=fields,
            id=link_id,
            team_id=book.team,
            livemode=livemode,
            url=f"https://pay.example/{link_id}",
            short_url=f"https://p.example/{link_id[-6:]}",
            automations=[
                {
                    "type": "invoice",
                    "from": "payment_link",
                    "ref": link_id,
                    "action": "create",
                }
            ],
        )
        return book.links.seed(link)

    def seed_reminder(
        self,
        payment_id: str,
        operation_id: str,
        *,
        team: str | None = None,
        livemode: bool = True,
        **fields: Json,
    ) -> Record:
        """Make or change a reminder operation.  The specification does not list its fields."""
        book = self.book(team=team, livemode=livemode)
        made = {
            "payment_id": payment_id,
            "operation_id": operation_id,
            "status": "processing",
        }
        record = book.reminders[payment_id, operation_id] = Record({**made, **fields})
        return record

    def seed_base(
        self,
        base_id: str,
        tables: Sequence[Mapping[str, Json]],
        *,
        team: str | None = None,
    ) -> None:
        """Make a base of the table-database provider."""
        self._state.bases[team or self.team, base_id] = [
            Record(table) for table in tables
        ]

    # Changes by somebody else

    def change_journey(
        self,
        journey_id: str,
        *,
        team: str | None = None,
        livemode: bool = True,
        **fields: Json,
    ) -> Record:
        """Change a journey as somebody else would, and its `last_updated` unless *fields* has one."""
        book = self.book(team=team, livemode=livemode)
        _note(self.ledger, "journeys.update", book, journey_id, fields)
        changes = {"last_updated": self._state.clock.now_ms(), **fields}
        journey = book.journeys.change(journey_id, changes)
        if journey["status"] != "draft":
            book.published.setdefault(journey_id, journey)
        return journey

    def change_webhook(
        self,
        webhook_id: str,
        *,
        team: str | None = None,
        livemode: bool = True,
        **fields: Json,
    ) -> Record:
        """Change a webhook as somebody else would."""
        book = self.book(team=team, livemode=livemode)
        _note(self.ledger, "webhooks.update", book, webhook_id, fields)
        return book.webhooks.change(webhook_id, fields)

    def remove_webhook(
        self,
        webhook_id: str,
        *,
        team: str | None = None,
        livemode: bool = True,
    ) -> None:
        """Delete a webhook as somebody else would."""
        book = self.book(team=team, livemode=livemode)
        _note(self.ledger, "webhooks.delete", book, webhook_id, None)
        book.webhooks.remove(webhook_id)


def _note(
    ledger: Ledger,
    operation: str,
    book: Book,
    target: str,
    body: Json,
) -> None:
    """Record that somebody else changed *target*, immediately and without a request."""
    entry = Entry(
        operation=operation,
        path_id=target,
        target=target,
        body=body,
        by="other",
    )
    entry.team = book.team
    entry.livemode = book.livemode
    entry.applied_at = entry.ended_at = ledger.steady()
    ledger.add(entry, write=True)


def seed_all(service: Seeding, state: ServiceState) -> None:
    """Add the records that each service has."""
    service.seed_user(id="usr_1", teams=["team_1", "team_2"])
    service.seed_team(id=service.team, connect=True)
    service.seed_team(id="team_2")
    service.seed_team(id="team_3")
    for livemode in (True, False):
        service.seed_journey(id="jrn_1", livemode=livemode)
        service.seed_journey(
            id="jrn_2",
            status="published",
            livemode=livemode,
        )
        service.seed_invoices(12, livemode=livemode)
        service.seed_invoices(3, livemode=livemode, invoice_type="P")
        service.seed_link(id="plink_1", livemode=livemode)
        service.seed_download(request_id="request_1", livemode=livemode)
        service.seed_retention(RETENTION, livemode=livemode)
        book = service.book(livemode=livemode)
        # The specification lists no fields, so it has only the ids by which it is read.
        book.reminders[REMINDER] = Record(
            zip(("payment_id", "operation_id"), REMINDER, strict=True)
        )
        book.sheets.seed(
            samples.sample(state, "connection", livemode=livemode, key="connection"),
            "key",
        )
        book.mappings.append(
            Record(
                id="map_1",
                base_id="base_1",
                state="active",
            )
        )
    service.seed_base(
        "base_1",
        [
            {
                "id": "tbl_1",
                "name": "Pagos",
                "fields": [{"id": "fld_1", "name": "Monto"}],
            }
        ],
    )
