"""
The methods of `Simulator` that add records, and that change them as somebody else would.

They do not use the socket, so they do not count as arrivals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from invsvc_async.simulator import sample_documents, sample_people
from invsvc_async.simulator.json_records import Json, Record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from invsvc_async.simulator.ledger import Ledger
    from invsvc_async.simulator.state import Book, State

BILLING = "acct_1"
RETENTION = "11111111-1111-4111-8111-111111111111"
REMINDER = ("pay_1", "22222222-2222-4222-8222-222222222222")  # payment, operation


class Seeding:
    """Methods that add or change records in the service's state, immediately."""

    team: str
    ledger: Ledger
    _state: State

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
        """Make a team.  If *connected*, it shares the billing account; *connect* makes it a managing one."""
        billing = BILLING if connected else self._state.new_id("acct_")
        team = sample_people.new_team(self._state, fields, owner="usr_1", billing=billing, connect=connect)
        self._state.accounts[team.id].features = set(features)
        return self._state.teams.seed(team)

    def set_features(self, team: str, *features: str, api_access: bool = True) -> None:
        """Change what a team's plan includes."""
        self._state.accounts[team].features = set(features)
        self._state.accounts[team].api_access = api_access

    def seed_user(self, **fields: Json) -> Record:
        """Make a user of the default team."""
        return self._state.users.seed(sample_people.new_user(self._state, {"teams": [self.team], **fields}))

    def seed_webhook(
        self,
        *,
        url: str = "https://receiver.example/in",
        events: Sequence[str] = ("invoice.created",),
        description: str | None = None,
        status: str = "active",
        team: str | None = None,
        livemode: bool = True,
        **fields: Json,
    ) -> Record:
        """Make a webhook, as if it had always existed."""
        book = self.book(team=team, livemode=livemode)
        told = {} if description is None else {"description": description}
        hook = {"id": self._state.new_id("wh_"), "url": url, "events": list(events), "status": status, **told}
        made = {"owner": "usr_1", "created_at": self._state.clock.now_ms() - sample_people.DAY}
        record = book.webhooks.seed(Record(hook | made | fields))
        book.secrets[record.id] = self._state.new_id("whsec_")
        return record

    def secret_of(self, webhook_id: str, *, team: str | None = None, livemode: bool = True) -> str:
        """Return the secret of a webhook, which only a create shows."""
        return self.book(team=team, livemode=livemode).secrets[webhook_id]

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
        journey = sample_documents.new_journey(self._state, book, fields)
        if journey["status"] != "draft":
            book.published[journey.id] = journey.with_changes(dict(published or {}))
        return book.journeys.seed(journey)

    def seed_invoice(self, *, team: str | None = None, livemode: bool = True, **fields: Json) -> Record:
        """Make an invoice of type E, or of another `invoice_type`."""
        book = self.book(team=team, livemode=livemode)
        return book.invoices.seed(sample_documents.new_invoice(self._state, book, fields), "uuid")

    def seed_invoices(
        self, n: int, *, team: str | None = None, livemode: bool = True, **fields: Json
    ) -> list[Record]:
        """Make *n* invoices that differ only in ids, folios and the like."""
        return [self.seed_invoice(team=team, livemode=livemode, **fields) for _ in range(n)]

    def seed_download(self, *, team: str | None = None, livemode: bool = True, **fields: Json) -> Record:
        """Make a download request, by default completed, and its packages."""
        book = self.book(team=team, livemode=livemode)
        download = sample_documents.new_download(self._state, fields)
        book.packages.update(
            {package["id"]: sample_documents.new_package(package["id"]) for package in download["packages"]}
        )
        return book.downloads.seed(download, "request_id")

    def complete_download(self, request_id: str, *, team: str | None = None, livemode: bool = True) -> Record:
        """Complete a download request, with one package."""
        fields = {"request_id": request_id, "status": "completed"}
        return self.seed_download(team=team, livemode=livemode, **fields)

    def seed_retention(
        self, retention_id: str | None = None, *, team: str | None = None, livemode: bool = True
    ) -> Record:
        """Make a stamped retention with a PDF and an XML.  Return its id and files."""
        retention = retention_id or self._state.new_folio().lower()
        files = self.book(team=team, livemode=livemode).retentions[retention] = sample_documents.new_files(
            retention
        )
        return Record(id=retention, files=files)

    def seed_link(self, *, team: str | None = None, livemode: bool = True, **fields: Json) -> Record:
        """Make a reusable payment link."""
        book = self.book(team=team, livemode=livemode)
        return book.links.seed(sample_documents.new_link(self._state, book, fields))

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
        record = Record(
            {"payment_id": payment_id, "operation_id": operation_id, "status": "processing", **fields}
        )
        book.reminders[payment_id, operation_id] = record
        return record

    def seed_base(
        self, base_id: str, tables: Sequence[Mapping[str, Json]], *, team: str | None = None
    ) -> None:
        """Make a base of the table-database provider."""
        self._state.bases[team or self.team, base_id] = [Record(table) for table in tables]

    # Changes by somebody else

    def change_journey(
        self, journey_id: str, *, team: str | None = None, livemode: bool = True, **fields: Json
    ) -> Record:
        """Change a journey as somebody else would, and its `last_updated` unless *fields* has one."""
        book = self.book(team=team, livemode=livemode)
        self._by_other("journeys.update", book, journey_id, fields)
        changes = {"last_updated": self._state.clock.now_ms(), **fields}
        journey = book.journeys.put(journey_id, book.journeys.items[journey_id].with_changes(changes))
        if journey["status"] != "draft":
            book.published.setdefault(journey_id, journey)
        return journey

    def change_webhook(
        self, webhook_id: str, *, team: str | None = None, livemode: bool = True, **fields: Json
    ) -> Record:
        """Change a webhook as somebody else would."""
        book = self.book(team=team, livemode=livemode)
        self._by_other("webhooks.update", book, webhook_id, fields)
        return book.webhooks.put(webhook_id, book.webhooks.items[webhook_id].with_changes(fields))

    def remove_webhook(self, webhook_id: str, *, team: str | None = None, livemode: bool = True) -> None:
        """Delete a webhook as somebody else would."""
        book = self.book(team=team, livemode=livemode)
        self._by_other("webhooks.delete", book, webhook_id, None)
        book.webhooks.remove(webhook_id)

    def _by_other(self, operation: str, book: Book, target: str, body: Json) -> None:
        self.ledger.by_other(operation, team=book.team, livemode=book.livemode, target=target, body=body)

    def _seed_all(self) -> None:
        self.seed_user(id="usr_1", teams=["team_1", "team_2"])
        self.seed_team(id=self.team, connect=True)
        self.seed_team(id="team_2")
        self.seed_team(id="team_3")
        for livemode in (True, False):
            self.seed_journey(id="jrn_1", livemode=livemode)
            self.seed_journey(id="jrn_2", status="published", livemode=livemode)
            self.seed_invoices(12, livemode=livemode)
            self.seed_invoices(3, livemode=livemode, invoice_type="P")
            self.seed_link(id="plink_1", livemode=livemode)
            self.seed_download(request_id="request_1", livemode=livemode)
            self.seed_retention(RETENTION, livemode=livemode)
            book = self.book(livemode=livemode)
            # The specification lists no fields, so it has only the ids by which it is read.
            book.reminders[REMINDER] = Record(zip(("payment_id", "operation_id"), REMINDER, strict=True))
            book.sheets.seed(
                Record(sample_documents.new_connection(self._state, book), key="connection"), "key"
            )
            book.mappings.append(Record(id="map_1", base_id="base_1", state="active"))
        self.seed_base(
            "base_1", [{"id": "tbl_1", "name": "Pagos", "fields": [{"id": "fld_1", "name": "Monto"}]}]
        )
