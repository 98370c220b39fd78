"""One request on the wire, and the state that all calls of a client share."""
