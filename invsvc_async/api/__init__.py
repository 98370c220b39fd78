"""The operations of the service, their arguments and their query parameters."""
