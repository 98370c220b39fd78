"""The receiver: from the HTTP request of a delivery to the application's handler."""
