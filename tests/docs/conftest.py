from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.warm import warm_program


@pytest.fixture(scope="session")
def warm() -> Iterator[Path]:
    """A folder with a program ``kinrank`` that starts at once."""
    with warm_program() as folder:
        yield folder
