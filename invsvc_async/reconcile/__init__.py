"""Know what became of a write: pure; never the network, a clock or a client."""
