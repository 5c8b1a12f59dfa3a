"""``kinrank doctor``: show what is installed, and what is missing."""

from __future__ import annotations

import json
import platform
import re
from importlib import metadata
from typing import Any

import typer
from rich.table import Table

from kinrank.cli import console
from kinrank.cli.options import AsJson

_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?P<version>[^;]*)(;.*extra == ['\"](?P<extra>[\w-]+)['\"])?")
_FOR_CONTRIBUTORS = ("all", "docs", "dev")


def doctor(as_json: AsJson = False) -> None:
    """Show versions, threads and extras, and how to install what is missing."""
    found = _findings()
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    for name, value in found["system"].items():
        console.print_result(f"{name:13} {value}")
    table = Table(box=None, pad_edge=False)
    for title in ("extra", "packages", "to install"):
        table.add_column(title)
    for extra, packages in found["extras"].items():
        shown = ", ".join(f"{name} {version or 'missing'}" for name, version in packages.items())
        missing = None in packages.values()
        table.add_row(extra, shown, f"pip install 'kinrank[{extra}]'" if missing else "")
    console.print_result("")
    console.print_result(table)


def _findings() -> dict[str, Any]:
    import kinrank
    from kinrank.parallel import usable_cores, usable_threads

    core: dict[str, str | None] = {}
    extras: dict[str, dict[str, str | None]] = {}
    for text in metadata.requires("kinrank") or []:
        parsed = _REQUIREMENT.match(text)
        if parsed is None or parsed["name"] == "kinrank" or parsed["extra"] in _FOR_CONTRIBUTORS:
            continue
        where = core if parsed["extra"] is None else extras.setdefault(parsed["extra"], {})
        where[parsed["name"]] = _version(parsed["name"])
    return {
        "system": {
            "kinrank": kinrank.__version__,
            "Python": f"{platform.python_version()} on {platform.platform()}",
            "cores": usable_cores(),
            "threads": f"{usable_threads()} at most (--threads, OMP_NUM_THREADS)",
            **{name: version or "missing" for name, version in core.items()},
        },
        "extras": extras,
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
