"""Stores of writes: entries, packed intents, records of outcomes."""
