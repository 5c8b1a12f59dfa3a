"""When a report was made, and with which versions."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from importlib import metadata

import kinrank

_PACKAGES = ("numpy", "scipy", "scikit-learn", "lightgbm")


def made_now() -> str:
    """Return the time, and the versions that a result may depend on."""
    versions = [f"kinrank {kinrank.__version__}", f"Python {platform.python_version()}"]
    for package in _PACKAGES:
        try:
            versions.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            continue
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, with {', '.join(versions)}"
