"""The version of kinrank, in a module that every other module can import."""

__version__ = "0.1.0"
