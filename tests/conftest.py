"""Fixtures of the whole suite, and which tests run when extras or judged collections are missing."""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import HealthCheck, settings

from kinrank.errors import MissingExtraError

HERE = Path(__file__).parent
IN_CI = "CI" in os.environ
# Every night: all data, more rounds and generated requests, and the tests with the marker `thorough`.
THOROUGH = "KINRANK_THOROUGH" in os.environ
# scripts/test-core sets this: its environment has no extras. Elsewhere a missing extra is a failure.
CORE_ONLY = "KINRANK_CORE_ONLY" in os.environ
# No deadline, because the first call of a compiled function takes seconds. CI draws the same few examples every time,
# and fewer of them without extras, because the same tests run again with extras. Every night draws many others.
EXAMPLES = 5 if CORE_ONLY else 25 if IN_CI else 50
# A busy machine is slow, and that is no fault of a test.
UNHURRIED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("kinrank", **UNHURRIED, derandomize=IN_CI, max_examples=EXAMPLES)
settings.register_profile("thorough", **UNHURRIED, max_examples=300)
settings.load_profile("kinrank")
_MODULES = (
    "clarabel duckdb elasticsearch faiss ir_datasets ir_measures jsonschema kubernetes_validate "
    "lightgbm matplotlib msgspec opensearchpy opentelemetry pandas piqp playwright polars psycopg "
    "pyterrier ranx ray schemathesis tests.serve.asgi uvicorn yaml"
)
EXTRAS = re.compile(rf"^(?:import|from) (?:{'|'.join(map(re.escape, _MODULES.split()))})\b", re.M)
collect_ignore = [str(file) for file in HERE.rglob("*.py") if CORE_ONLY and EXTRAS.search(file.read_text())]

DATA = Path(os.environ.get("KINRANK_DATA", HERE.parents[1] / "shared" / "data"))
# Where each public collection comes from: the arguments of the marker `data`.
LETOR = "https://www.microsoft.com/en-us/research/project/letor-learning-rank-information-retrieval"
COLLECTIONS = {
    "letor/MQ2007": LETOR,
    "letor/MQ2008": LETOR,
    "letor/OHSUMED": LETOR,
    "letor/OHSUMED-25": LETOR,
    "text/msrd": "https://github.com/metarank/msrd",
    "text/mwmbl": "https://github.com/mwmbl/mwmbl",
    "real/metatool": "https://github.com/HowieHwong/MetaTool",
}
MISSING = pytest.StashKey[set[str]]()


def missing_collections(item: pytest.Item) -> list[str]:
    """Return the collections that a test needs and `DATA` does not hold."""
    marker = item.get_closest_marker("data")
    if marker is None:
        return []
    assert marker.args, f"{item.nodeid}: name the collections, as in data('letor/MQ2007')"
    assert set(marker.args) <= set(COLLECTIONS), f"{item.nodeid}: unknown collection in {marker.args}"
    return [name for name in marker.args if not (DATA / name).is_dir()]


def how_to_get(names: list[str]) -> str:
    """Return the names and sources of collections, in one line."""
    sources = {source: [name for name in names if COLLECTIONS[name] == source] for source in COLLECTIONS.values()}
    listed = "; ".join(f"{', '.join(some)} from {source}" for source, some in sources.items() if some)
    return f"{listed}. Set KINRANK_DATA to a folder that holds them, as described in docs/benchmarks.md"


def pytest_itemcollected(item: pytest.Item) -> None:
    """Run the tests with engines in one process of pytest-xdist: they share the engines."""
    if item.get_closest_marker("engine"):
        item.add_marker(pytest.mark.xdist_group("engine"))


@pytest.hookimpl(trylast=True)  # after the selection by -m and -k
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests whose data or extras are missing, start with the longest; measure coverage in fast tests only."""
    items[:] = [item for item in items if all(find_spec(each.args[0]) for each in item.iter_markers("extra"))]
    items[:] = [item for item in items if THOROUGH or not item.get_closest_marker("thorough")]
    # With the longest tests at the end, one process of pytest-xdist would wait for the other.
    items.sort(key=lambda item: item.path.parent.name not in ("study", "reproduction", "docs"))
    if config.pluginmanager.hasplugin("_cov"):
        # Python 3.11 traces pure Python code at about 1.6 times its usual time, and tests of load need that time.
        for item in items:
            if item.get_closest_marker("slow") or item.get_closest_marker("alone"):
                item.add_marker(pytest.mark.no_cover)
    if not IN_CI:
        deselected = {item: missing_collections(item) for item in items}
        items[:] = [item for item in items if not deselected[item]]
        _report_missing(config, {name for names in deselected.values() for name in names})
        config.hook.pytest_deselected(items=[item for item, names in deselected.items() if names])


def _report_missing(config: pytest.Config, names: set[str]) -> None:
    """Remember the missing collections for the summary. A worker of pytest-xdist sends them to the main process."""
    config.stash[MISSING] = config.stash.get(MISSING, set()) | names
    if hasattr(config, "workeroutput"):
        config.workeroutput["missing"] = sorted(names)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Collect the missing collections of a worker."""
    _report_missing(node.config, set(getattr(node, "workeroutput", {}).get("missing", [])))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Report which tests did not run for lack of data, and how to get it."""
    if missing := config.stash.get(MISSING, set()):
        terminalreporter.write_line(f"Not run: tests of {how_to_get(sorted(missing))}.")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """Set up the fixtures of a test."""
    if missing := missing_collections(item):
        pytest.fail(f"missing data: {how_to_get(missing)}", pytrace=False)
    return (yield from _skip_if_extra_is_missing(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Run a test."""
    return (yield from _skip_if_extra_is_missing(item))


def missing(text: str) -> NoReturn:
    """Fail because of a missing tool; skip without extras, because the same tests run again with them."""
    (pytest.skip if CORE_ONLY else pytest.fail)(text)


def _skip_if_extra_is_missing(item: pytest.Item) -> Generator[None, object, object]:
    """Without the extras, skip a test whose code raises the error that names the missing one."""
    try:
        return (yield)
    except MissingExtraError as error:
        if not CORE_ONLY:
            raise
        pytest.skip(f"{item.name}: {error}")


@pytest.fixture
def browser() -> Generator[Any]:
    """A headless Chromium, a `playwright.sync_api.Browser`. It runs an event loop, so that no test beside it can."""
    from tests.browsers import launched

    with launched() as browser:
        yield browser


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Return the folder of the judged collections: ``KINRANK_DATA``, or ``shared/data`` next to the checkout."""
    return DATA
