"""One class for each resource of the service."""
