"""``kinrank doctor``: check a table, or show what is installed and what is missing."""

from __future__ import annotations

import json
import platform
import re
import shlex
from dataclasses import asdict, astuple
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from kinrank.cli import console
from kinrank.cli.options import AsJson, table_columns
from kinrank.data.source import FORMATS, Source
from kinrank.errors import DataError
from kinrank.registry import how_to_install

_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?P<version>[^;]*)(;.*extra == ['\"](?P<extra>[\w-]+)['\"])?")
_FOR_CONTRIBUTORS = ("all", "docs", "dev")


def doctor(
    data: Annotated[
        str | None, typer.Argument(metavar="DATA", help=f"Judged queries to check: {FORMATS}.", show_default="none")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check judged queries and print the command that reads them; without DATA, show versions, threads and extras."""
    if data is not None:
        _check_data(data, as_json)
        return
    installed = _findings()
    if as_json:
        typer.echo(json.dumps(installed, indent=2))
        return
    for name, value in installed["system"].items():
        console.print_result(f"{name:13} {value}")
    table = Table(box=None, pad_edge=False)
    for title in ("extra", "packages", "to install"):
        table.add_column(title)
    for extra, packages in installed["extras"].items():
        shown = ", ".join(f"{name} {version or 'missing'}" for name, version in packages.items())
        missing = None in packages.values()
        table.add_row(extra, shown, how_to_install(extra) if missing else "")
    console.print_result("")
    console.print_result(table)


def _check_data(path: str, as_json: bool) -> None:
    from kinrank.data.delimited import read_candidates
    from kinrank.data.parquet import read_parquet_table
    from kinrank.study._table_check import TableCheck, check_queries, check_table, click_log_command

    if Path(path).suffix in (".ndjson", ".jsonl", ".json"):
        _say_click_log(shlex.join(["kinrank", "clicks", path, "--out", "judgments.parquet"]), as_json)
        return
    source = Source(path)
    with console.progress(f"reading {path}"):
        if source.format in ("csv", "parquet"):
            columns = table_columns.get()
            table = read_candidates(path, **columns) if source.format == "csv" else read_parquet_table(path)
            command = None if columns["y"] != "y" else click_log_command(table.column_names, path)
            if command is not None:
                _say_click_log(command, as_json)
                return
            check = check_table(table, columns)
        else:
            check = TableCheck(queries=source.read())
            check_queries(check)
    commands = check.commands(path)
    if as_json:
        findings = [asdict(finding) for finding in check.findings]
        typer.echo(json.dumps({"findings": findings, "ready": check.ready, "commands": commands}, indent=2))
    else:
        rows = [astuple(finding) for finding in check.findings]
        level, subject = (max(len(row[column]) for row in rows) for column in (0, 1))
        for row in rows:
            console.print_result(f"{row[0]:{level}}  {row[1]:{subject}}  {row[2]}")
        for command in commands:
            console.print_result(f"\n{command}")
    if not check.ready:
        raise DataError(f"{path}: solve the problems above and check again")


def _say_click_log(command: str, as_json: bool) -> None:
    """Print that a file looks like a click log, with the command that reads it."""
    text = "this looks like a click log: make judgments of it first"
    if as_json:
        finding = {"level": "note", "subject": "click log", "text": text}
        typer.echo(json.dumps({"findings": [finding], "ready": False, "commands": [command]}, indent=2))
        return
    console.print_result(f"note  click log  {text}")
    console.print_result(f"\n{command}")


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
            "threads": f"{usable_threads()} at most (OMP_NUM_THREADS)",
            **{name: version or "missing" for name, version in core.items()},
        },
        "extras": extras,
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
