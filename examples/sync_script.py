"""
A client in code without `async`, in a thread of its own.

``INVSVC_BASE_URL=… INVSVC_API_KEY=… python examples/sync_script.py JOURNEY NAME`` renames a journey.
"""

from __future__ import annotations

import sys

from invsvc_async import Client, Portal, ReconcilePolicy

# Nobody should wait 90 s; below 50 s, hardly anything could be sent again.
POLICY = ReconcilePolicy(deadline=50.0)


def made() -> Client:
    """Make the client, for a portal."""
    return Client.from_env(reconcile=POLICY)


def main(journey: str, name: str) -> int:
    """Rename a journey, and print the verdict."""
    with Portal(made) as portal:
        client = portal.client
        outcome = portal.call(client.journeys.update(journey, name=name).outcome())
        if not outcome.applied:
            print(outcome.verdict, outcome.message)
            return 1
        print(outcome.verdict, portal.call(client.journeys.get(journey)).name)
        return 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("arguments: are missing. Pass JOURNEY and NAME.")
    sys.exit(main(sys.argv[1], sys.argv[2]))
