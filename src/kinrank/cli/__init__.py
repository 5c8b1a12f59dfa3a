"""Command line: one file per command or group, each a thin layer over the library.

Results go to stdout; messages, warnings and progress go to stderr. Commands import the library when they run, so that
``--help`` is fast.
"""

from __future__ import annotations

from kinrank.cli.app import app, main

__all__ = ["app", "main"]
