"""HTTP interface of the service, on Starlette and uvicorn."""

from __future__ import annotations

from kinrank.registry import import_extra

for _module in ("starlette", "msgspec", "prometheus_client", "uvicorn"):
    import_extra(_module, "serve")
