"""The demo over HTTP, on Starlette."""

from __future__ import annotations

from kinrank.registry import import_extra

import_extra("starlette", "demo")
