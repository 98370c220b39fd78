"""Agents: the tools of `invsvc mcp`, called by the official SDK's client, against the embedded service."""
