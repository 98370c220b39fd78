"""Offer one class for each resource of the service; never a status number or a loop."""
