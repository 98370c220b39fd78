"""The command ``python -m invsvc_async.simulator``."""

from __future__ import annotations

from invsvc_async.simulator.serve import main

if __name__ == "__main__":
    main()
