"""The command line: one file per verb, each a thin skin over the library.

Results go to stdout; messages, warnings and progress to stderr. Verbs import the library when they run, so that
``--help`` is quick.
"""

from __future__ import annotations

from kinrank.cli.app import app, main

__all__ = ["app", "main"]
