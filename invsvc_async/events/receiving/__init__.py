"""From a delivery's HTTP request to the application's handler."""
