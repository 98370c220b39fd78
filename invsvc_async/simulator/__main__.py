"""Serve the simulator from the command line; must never hold anything but that call."""

from __future__ import annotations

from invsvc_async.simulator.serve import main

if __name__ == "__main__":
    main()
