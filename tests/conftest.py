"""What every test may ask for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The judged collections: the setting KINRANK_DATA, or shared/data beside the checkout."""
    default = Path(__file__).parents[2] / "shared" / "data"
    folder = Path(os.environ.get("KINRANK_DATA", default))
    if not folder.is_dir():
        pytest.fail(f"{folder} is not there: set KINRANK_DATA to the judged collections, or run -m 'not data'")
    return folder
