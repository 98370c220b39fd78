"""Values that a service stores in other words, whichever of its words it uses; no two numbers give the same."""

from __future__ import annotations

from typing import Any

HOST = "me.example"
TRIGGERS = ("manual", "schedule", "webhook", "invoice.overdue")


def text(number: int) -> str:
    """Return a text that each way of storing a text changes, and that a cut leaves unique."""
    return f" Cafe\u0301 {number} <b>R&D</b> \U0001f389 in\u200bvoice abcd1234efgh{number:06d} of the Gro\u00df-Shop, long "


def url(number: int, host: str = HOST) -> str:
    """Return a URL that each way of storing one changes."""
    return f"https://{host}/In/{number}?z=cafe\u0301\u200b&token=s3cret{number:06d}&a={number}"


def longer(url: str) -> str:
    """Return *url* with an end that each way of storing a URL changes."""
    return f"{url}/In?z=cafe\u0301\u200b&token=s3cret123456&a=1"


def graph(number: int) -> dict[str, Any]:
    """Return a graph that each way of storing one changes."""
    nodes = [
        {
            "id": f"n{number}-{place}",
            "type": "step",
            "position": {"x": place + 0.25, "y": -0.75},
            "data": {},
        }
        for place in range(2)
    ]
    edges = [{"id": f"e{number}", "source": f"n{number}-0", "target": f"n{number}-1"}]
    return {"nodes": nodes, "edges": edges}


def trigger(number: int) -> str:
    """Return a trigger that has an alias."""
    return TRIGGERS[number % len(TRIGGERS)]
