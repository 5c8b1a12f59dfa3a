"""The quick tests with other versions of Python and of the dependencies. ``nox --list`` shows the sessions.

With one interpreter, scripts/test-fast does the same in the environment of scripts/install.
"""

from __future__ import annotations

from pathlib import Path

import nox

nox.options.default_venv_backend = "uv"

PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


@nox.session(python=PYTHONS)
@nox.parametrize("dependencies", ["newest", "oldest"])
def tests(session: nox.Session, dependencies: str) -> None:
    """Run the quick tests without extras, with the newest or the oldest dependencies that are allowed."""
    resolution = {"newest": "highest", "oldest": "lowest-direct"}[dependencies]
    session.install(f"--resolution={resolution}", ".")
    session.install("pytest", "pytest-xdist", "hypothesis")
    session.run(
        *("pytest", "-n", "2", "-m", "not slow and not data and not engine and not neural", "tests"),
        *("--ignore=tests/docs", "--ignore=tests/test_project.py"),
        *("-W", "ignore:Passing a non-Collection", *session.posargs),  # the oldest scikit-learn does, to pytest
        env={**ONE_THREAD, "KINRANK_CORE_ONLY": "1"},
    )


@nox.session(python=PYTHONS)
def wheel(session: nox.Session) -> None:
    """Install the built wheel (scripts/build) and rank with it."""
    session.install("kinrank[lightgbm]", "--find-links=dist", "--reinstall-package=kinrank")
    session.chdir(session.create_tmp())
    session.run("kinrank", "doctor")
    session.run("python", "-c", QUICK_START, env=ONE_THREAD)


@nox.session(python="3.11")
def saved_models(session: nox.Session) -> None:
    """Save models with the newest dependencies, and rank with them with the oldest ones, and the other way round."""
    for saves, loads in (("highest", "lowest-direct"), ("lowest-direct", "highest")):
        folder = session.create_tmp()
        for resolution, command in ((saves, "save"), (loads, "check")):
            session.install(f"--resolution={resolution}", "--upgrade", ".[lightgbm]")
            session.run("python", "scripts/saved_models.py", command, f"{folder}/{saves}", env=ONE_THREAD)


@nox.session(python="3.11")
def sbom(session: nox.Session) -> None:
    """Write the bill of materials of what the image installs: dist/kinrank.cdx.json."""
    session.install("--require-hashes", "--requirement=deploy/requirements.lock")
    session.install("--no-deps", ".")
    python = session.run("python", "-c", "import sys; print(sys.executable)", silent=True)
    output = Path("dist", "kinrank.cdx.json")
    output.parent.mkdir(exist_ok=True)
    tool = ("uvx", "--from=cyclonedx-bom>=7,<8", "cyclonedx-py", "environment")
    about = ("--pyproject=pyproject.toml", "--mc-type=application", "--output-reproducible", f"--output-file={output}")
    session.run(*tool, *about, str(python).strip(), external=True)


QUICK_START = """
from kinrank import KinRanker
from kinrank.datasets import make_intents
queries = make_intents(200, 50, spread=1.0)
print(KinRanker().fit(queries[:200]).score(queries[200:]))
"""
