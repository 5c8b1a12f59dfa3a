"""Report as one HTML file that loads nothing: style, script, pictures and data are all inside."""

from __future__ import annotations

import base64
import hashlib
import json
from importlib.resources import files
from typing import Any

import kinrank
from kinrank.registry import import_extra
from kinrank.study.report.contents import Report
from kinrank.study.report.context import context_of
from kinrank.study.report.figures import figures_of
from kinrank.study.report.querymap import map_data

_SIZE = "###.# KB"  # stands where the size of the file will be, and is as long


def render(report: Report) -> str:
    """The whole page.

    Whatever the data says is escaped: names of queries, features and rankers are never markup. The page's own policy
    forbids the browser to load, send or run anything but the one style sheet and script it was written with.
    """
    jinja2 = import_extra("jinja2", "report")
    here = files("kinrank.study.report")
    style, script = (here.joinpath(name).read_text("utf-8") for name in ("page.css", "page.js"))
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    template = environment.from_string(here.joinpath("page.html.j2").read_text("utf-8"))
    safe = environment.filters["safe"]
    figures = {name: safe(markup) for name, markup in figures_of(report).items()}
    data = "" if report.kinship is None else _json(map_data(report, report.kinship))
    page: str = template.render(
        **context_of(report),
        figures=figures,
        style=safe(style),
        script=safe(script),
        data=safe(data),
        policy=_policy(style, script),
        version=kinrank.__version__,
        size=_SIZE,
    )
    return page.replace(_SIZE, _size(len(page.encode("utf-8", "replace"))), 1)


def _policy(style: str, script: str) -> str:
    """Nothing may be loaded, and nothing inline runs but what has these hashes."""
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    return (
        f"default-src 'none'; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _json(data: dict[str, Any]) -> str:
    """JSON that cannot end the element it stands in."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _size(n_bytes: int) -> str:
    kilobytes = n_bytes / 1000
    return f"{kilobytes:.0f} KB" if kilobytes < 1000 else f"{kilobytes / 1000:.1f} MB"
