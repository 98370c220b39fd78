"""What most programs do in a task: send, and after an error send again."""

from __future__ import annotations

import http.client
import json
import os
import time
from pathlib import Path
from urllib.parse import urlsplit

ATTEMPTS = 3


def create(name: str) -> None:
    """Create a webhook for *name*; note in a file that it was done."""
    base = urlsplit(os.environ["NAIVE_BASE_URL"])
    body = json.dumps(
        {"url": f"https://naive.example/{name}", "events": ["invoice.created"]}
    )
    headers = {
        "Authorization": f"Bearer {os.environ['NAIVE_API_KEY']}",
        "Content-Type": "application/json",
    }
    for attempt in range(ATTEMPTS):
        connection = http.client.HTTPConnection(
            base.hostname or "", base.port, timeout=1
        )
        try:
            connection.request("POST", f"{base.path}/webhooks", body, headers)
            answer = connection.getresponse()
            answer.read()
            if answer.status < 500:
                break
        except (OSError, http.client.HTTPException):
            pass
        finally:
            connection.close()
        time.sleep(0.1 * (attempt + 1))
    Path(os.environ["NAIVE_DONE"], name).touch()
