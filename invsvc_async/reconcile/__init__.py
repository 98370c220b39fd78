"""The rules that find out whether a write was applied.  Pure: no network, clock or client."""
