"""Samples of every resource, in the shape that the specification gives it: the wire's own text."""

from __future__ import annotations

from decimal import Decimal

ADDRESS = """{"street": "Av. Constitución", "exterior": "411", "neighborhood": "Centro", "city": "Monterrey",
"state": "Nuevo León", "zip": "64000", "country": "MEX"}"""

CUSTOMER = f"""{{"id": "cli_1", "name": "Norte", "legal_name": "COMERCIALIZADORA DEL NORTE", "email": "pay@norte.example",
"bcc": ["a@norte.example"], "phone": "+528112345678", "tax_id": "CNO850101AB1", "tax_system": "601", "use": "G03",
"address": {ADDRESS}, "is_valid": true, "efos": {{"is_valid": true}}, "metadata": {{"erp": "A1", "rank": 1.50}},
"livemode": false, "from": "api", "owner": "usr_1", "team": "team_1", "created_at": 1746057600123}}"""

INVOICE = f"""{{"uuid": "6F1E0001-9B3C-4F9D-8E21-000000000001", "idempotency_key": null, "client": {CUSTOMER},
"created_at": 1746057600123, "date": 1746057600000, "currency": "MXN", "exchange_rate": 1, "total": 1234567890.123456789,
"subtotal": 1064282663.90, "discount": 0, "taxes": 170285226.22, "withholding_taxes": 0.00, "series": "F", "folio_number": 7,
"invoice_type": "E", "use": "G03", "payment_form": "03", "payment_method": "PUE", "livemode": false, "owner": "usr_1",
"team": "team_1", "from": "api", "status": "valid", "payments": [], "invoices": [{{"amount": 1.10}}],
"items": [{{"id": "item_1", "description": "Servicio", "quantity": 2, "unit_price": 10.5000, "product_key": "81112100",
"unit_key": "E48"}}], "metadata": {{"order": "o1"}}, "emails": ["pay@norte.example"], "cancellation": null,
"stamp": {{"sello": "abc==", "stamp_at": 1746057600999}}, "verification_url": "https://verify.example/?id=1",
"related_documents": [{{"relationship": "01", "documents": ["6F1E0002-9B3C-4F9D-8E21-000000000002"]}}]}}"""

JOURNEY = """{"id": "jrn_1", "name": "Dunning", "description": null, "livemode": true, "owner": "usr_1", "team": null,
"clonedFrom": {"journeyId": "jrn_0", "livemode": true, "clonedAt": 1746057600123}, "created_at": 1746057600123,
"last_updated": null, "status": "draft", "version": 3, "triggerType": "invoice.overdue", "graph": {"nodes": [
{"id": "n1", "type": "email", "position": {"x": 10, "y": -20.25}, "data": {"config": {"delay": 1.5}}},
{"id": "n2", "type": "end", "position": {"x": 0.1, "y": 3e3}, "data": {}}],
"edges": [{"id": "e1", "source": "n1", "target": "n2", "sourceHandle": null}],
"viewport": {"x": 0, "y": 0, "zoom": 0.75}}, "replacesDefaults": false, "stats": {"runs": 5, "errors": 0, "lastRunAt": null},
"from": "ai-builder", "pausedReason": null, "pausedDetail": null, "pausedAt": null, "groupId": "grp_1"}"""

TEAM = f"""{{"id": "team_1", "legal_name": "EMISORA", "address": {ADDRESS}, "brand": {{"alias": "Em", "primary_color": "#112233",
"secondary_color": "#445566", "logo": null}}, "settings": {{"default_description": null, "emails": {{"invoices_bcc": [],
"avoid_invoice_emails": false, "avoid_test_invoice_emails": true, "avoid_receipts_emails": false}},
"global_invoice_disabled": false, "use": "G03", "periodicity": {{"label": "Monthly", "value": "04"}}}},
"members": [{{"id": "usr_1", "email": "a@em.example", "role": "admin"}}], "owner": "usr_1", "support_email": "s@em.example",
"support_phone": "+52811", "tax_id": "EMI850101AB1", "tax_system": "601", "created_at": 1746057600123,
"sat": {{"completed": true, "connected_at": 1746057600123, "csd_expires_at": 1846057600123}},
"integrations": {{"shop": {{"completed": true, "category": null}}, "dbtable": {{"completed": false, "category": "data"}}}},
"metadata": {{}}, "credit_limit": null, "used_credits": 12.5, "credit_period_start": 1746057600000, "status": "active",
"scheduled_deletion": null, "onboarding_url": "https://on.example"}}"""

USER = f"""{{"id": "usr_1", "email": "a@em.example", "first_name": "Ana", "last_name": "Ríos", "phone": "+52811",
"teams": ["team_1", "team_2"], "created_at": 1746057600123, "company_role": "owner", "address": {ADDRESS}}}"""

LINK = """{"id": "plinkA1", "team_id": "team_1", "livemode": true, "status": "open", "amount": 99.90, "total": 115.884,
"url": "https://pay.example/1", "short_url": "https://p.example/1", "owner": "usr_1", "created_at": 1746057600123,
"updated_at": 1746057600124, "deleted_at": null, "revision": "r7", "effect_scope": "team_mode_payment_link", "views": 4,
"historical_references": {"invoices": ["inv_1"], "receipts": [], "unresolved_count": 1,
"authorization": "resolve_each_resource"}, "items": [{"anything": 1.0}], "currency": "MXN", "exchange": 17.2345,
"description": "Course", "metadata": {"k": "v"}, "limitDaysToPay": 3,
"automations": [{"type": "invoice", "from": "plinkA1", "ref": "r", "action": "create"}],
"custom_method_types": [{"id": "card"}]}"""

SHEET = """{"spreadsheet_id": "s1", "spreadsheet_name": "Book", "spreadsheet_url": "https://s.example", "sheet_name": "May",
"header_row": 1, "headers": ["Date", "Amount"], "livemode": false, "mapping": {"target": "payment", "fields": {"amount": "B"}},
"enabled": false, "poll_interval_minutes": 15, "connected_by_email": "a@em.example", "connected_at": 1746057600123,
"last_sync_at": 1746057600124, "last_polled_at": 1746057600125, "last_activity_at": 1746057600126,
"last_sync_summary": {"read": 9, "claimed": 8, "imported": 7, "adopted": 1, "failed": 0, "review": 0, "skipped": 1,
"remaining": 0}, "last_activity_summary": null, "totals": {"imported": 7, "adopted": 1, "failed": 0, "review": 0},
"sync_error": null}"""

DBTABLE_WEBHOOKS = """{"data": [{"id": "map_1", "weight": 0.10}], "has_more": false, "next_cursor": null, "scope": "mode",
"livemode": true, "provider_environment": "production", "can_manage": true, "can_recover_registration": false,
"blocking_operation_id": null, "connection": {"connected": true, "restricted": false, "recovery_session_id": null,
"identity_verification": null, "effect_scope": "shared", "oauth_credentials_retained": false}, "status": "processing"}"""

SAMPLES = {
    "Customer": CUSTOMER,
    "DbtableTables": """{"data": [{"id": "tbl_1", "fields": [{"id": "fld_1"}]}], "has_more": true, "next_cursor": "c",
"effect_scope": "shared", "provider_environment": "sandbox"}""",
    "DbtableWebhooks": DBTABLE_WEBHOOKS,
    "Deleted": """{"id": "wh_1", "message": "Webhook deleted"}""",
    "DownloadRequest": """{"id": "d1", "request_id": "r1", "status": "completed", "status_code": "5000", "invoice_count": 2,
"invoices_saved": 2, "invoices": ["u1"], "packages": [{"id": "p1", "index": 0}], "message": null}""",
    "Health": """{"status": "ok", "module": "webhooks"}""",
    "Invoice": INVOICE,
    "Journey": JOURNEY,
    "PaymentLink": LINK,
    "Preferences": """{"team_id": "team_1", "testmode": true, "search_collection": "c", "invoices_order_by": "date"}""",
    "ReminderOperation": """{"state": "sent", "attempts": 1, "cost": 0.10, "receipt": {"at": 1746057600123}}""",
    "RetentionFile": """{"content": "PHhtbC8+", "filename": "r.xml", "type": "application/xml"}""",
    "SheetConnection": SHEET,
    "Team": TEAM,
    "User": USER,
    "Webhook": """{"id": "wh_1", "url": "https://me.example/in", "events": ["invoice.created", "tomorrow.invented"],
"status": "active", "description": "orders", "owner": "usr_1", "created_at": 1746057600123, "secret": "whsec_1"}""",
}


def spelt(plain: object) -> object:
    """Convert every number of *plain* to text, so that 1.10 and 1.1 differ."""
    if isinstance(plain, dict):
        return {name: spelt(value) for name, value in plain.items()}
    if isinstance(plain, list):
        return [spelt(value) for value in plain]
    return (
        str(plain)
        if isinstance(plain, (int, Decimal)) and not isinstance(plain, bool)
        else plain
    )
