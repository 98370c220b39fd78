"""The examples for code without async: one loop and one client for all threads of a process."""

from __future__ import annotations

import asyncio
import json

import pytest

from examples.shop import Shop
from invsvc_async import ApiKey, Client, Portal
from tests.examples.serving import ran

pytestmark = pytest.mark.untraced


async def test_outbox_in_the_thread(service, address):
    """What a portal opens beside its client sends what a synchronous caller has committed."""

    def register():
        opened = Shop()
        with Portal(
            lambda: Client(service.base_url, ApiKey(service.api_key))
        ) as portal:
            portal.enter(opened.running())
            portal.call(opened.register("ana"))
            return portal.call(verdict_of(opened))

    assert await asyncio.to_thread(register) == "applied"
    assert len(service.ledger.effects("webhooks.create")) == 1


async def verdict_of(opened):
    async with asyncio.timeout(300):
        return (await opened.outbox.wait("ana")).verdict


def test_script(service):
    """It prints the verdict and ends with 0; a refusal ends with 1."""
    done, refused = [
        ran("sync_script.py", journey, "June") for journey in ("jrn_1", "nowhere")
    ]

    assert (done.stdout, done.returncode) == ("applied June\n", 0)
    assert refused.stdout.startswith("refused ")
    assert (refused.stderr.count("Traceback"), refused.returncode) == (0, 1)


def test_django_view(service, monkeypatch):
    """The views answer the model and the verdict."""
    pytest.importorskip("django", reason="Django is not installed")
    from django.conf import settings
    from django.test import RequestFactory

    if not settings.configured:
        settings.configure(DEFAULT_CHARSET="utf-8", ALLOWED_HOSTS=["*"])
    monkeypatch.setenv("INVSVC_BASE_URL", service.base_url)
    monkeypatch.setenv("INVSVC_API_KEY", service.api_key)
    from examples import django_view

    django_view.start()
    with django_view.opened:
        made = RequestFactory()
        shown = django_view.show(made.get("/"), "jrn_1")
        renamed = django_view.rename(made.post("/", {"name": "July"}), "jrn_1")
        missing = django_view.show(made.get("/"), "nowhere")
        invalid = django_view.rename(made.post("/", {"name": ""}), "jrn_1")

    assert json.loads(shown.content)["id"] == "jrn_1"
    assert (renamed.status_code, json.loads(renamed.content)["verdict"]) == (
        200,
        "applied",
    )
    assert missing.status_code == 404
    assert json.loads(missing.content)["error"] == "resource_not_found"
    assert invalid.status_code == 400
    assert json.loads(invalid.content)["message"].startswith("name: ")
