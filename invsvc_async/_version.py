"""The version of the package, for builds and at run time."""

__version__ = "0.1.0"
