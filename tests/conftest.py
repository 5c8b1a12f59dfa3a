"""What every test may ask for, and how the suite runs without the extras."""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

from kinrank.errors import MissingExtraError

HERE = Path(__file__).parent
# The first call of a compiled loop takes seconds, so no deadline; in CI the same examples every time.
settings.register_profile("kinrank", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("kinrank")
# Set by scripts/test-core, whose environment has no extras. Without it a missing dependency is a failure.
CORE_ONLY = "KINRANK_CORE_ONLY" in os.environ
_MODULES = (
    "catboost clarabel elasticsearch faiss graphql ir_measures jsonschema lightgbm matplotlib msgspec opensearchpy "
    "optuna pandas piqp playwright qdrant_client ray schemathesis tests.serve.asgi uvicorn xgboost"
)
EXTRAS = re.compile(rf"^(?:import|from) (?:{'|'.join(map(re.escape, _MODULES.split()))})\b", re.M)

collect_ignore = [str(file) for file in HERE.rglob("*.py") if CORE_ONLY and EXTRAS.search(file.read_text())]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """A fixture may reach for an extra as well."""
    return (yield from _told_of_missing_extras(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Run the test."""
    return (yield from _told_of_missing_extras(item))


def _told_of_missing_extras(item: pytest.Item) -> Generator[None, object, object]:
    """Without the extras, a test that reaches for one has been told so, which is all that can be asked."""
    try:
        return (yield)
    except MissingExtraError as error:
        if not CORE_ONLY:
            raise
        pytest.skip(f"{item.name}: {error}")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The judged collections: the setting KINRANK_DATA, or shared/data beside the checkout."""
    folder = Path(os.environ.get("KINRANK_DATA", HERE.parents[1] / "shared" / "data"))
    if not folder.is_dir():
        pytest.fail(f"{folder} is not there: set KINRANK_DATA to the judged collections, or run -m 'not data'")
    return folder
