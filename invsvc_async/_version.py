"""Hold the version, in this one place; never import anything."""

__version__ = "0.1.0"
