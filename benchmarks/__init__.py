"""Measure what the package costs, against what it stands on and against its peers."""
