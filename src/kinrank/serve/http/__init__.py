"""HTTP over the service: FastAPI and uvicorn, as thin as it can be."""

from __future__ import annotations

from kinrank.registry import import_extra

for _module in ("fastapi", "msgspec", "prometheus_client", "uvicorn"):
    import_extra(_module, "serve")
