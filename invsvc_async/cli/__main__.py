"""Run ``python -m invsvc_async.cli`` as ``invsvc``."""

from __future__ import annotations

from invsvc_async.cli import main

if __name__ == "__main__":
    main()
