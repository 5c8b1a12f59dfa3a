"""Render a report as one HTML file with its style, script, charts and data inside, and write it."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from importlib.resources import files
from typing import Any

import kinrank
from kinrank.data.textfile import atomic_writer
from kinrank.registry import import_extra
from kinrank.study.comparison import Comparison
from kinrank.study.report.charts import figures_of
from kinrank.study.report.collect import collect
from kinrank.study.report.contents import Report
from kinrank.study.report.context import context_of
from kinrank.study.report.querymap import map_data

_SIZE = "###.# KB"  # placeholder for the file size, of the same length


def render(report: Report) -> str:
    """Return the page.

    All text from the data is escaped: names of queries, features and rankers are never markup. The content security
    policy of the page blocks everything except its own style sheet and script.
    """
    jinja2 = import_extra("jinja2", "report")
    here = files("kinrank.study.report")
    style, script = (here.joinpath(name).read_text("utf-8") for name in ("page.css", "page.js"))
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    template = environment.from_string(here.joinpath("page.html.j2").read_text("utf-8"))
    safe = environment.filters["safe"]
    figures = {name: safe(markup) for name, markup in figures_of(report).items()}
    data = "" if report.neighbors is None else _json(map_data(report, report.neighbors))
    page: str = template.render(
        **context_of(report),
        figures=figures,
        style=safe(style),
        script=safe(script),
        data=safe(data),
        policy=content_policy(style, script),
        version=kinrank.__version__,
        size=_SIZE,
    )
    return page.replace(_SIZE, _size(len(page.encode("utf-8", "replace"))), 1)


def content_policy(style: str, script: str) -> str:
    """Return a policy that blocks all loads, and all inline code except the style and script with these hashes."""
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    return (
        f"default-src 'none'; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _json(data: dict[str, Any]) -> str:
    """Return JSON that cannot close the script element around it."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _size(n_bytes: int) -> str:
    kilobytes = n_bytes / 1000
    return f"{kilobytes:.0f} KB" if kilobytes < 1000 else f"{kilobytes / 1000:.1f} MB"


def write_report(
    path: str | os.PathLike[str], comparison: Comparison, subject: str | None = None, **settings: Any
) -> Report:
    """Write the report of a comparison.

    Parameters
    ----------
    path
        Output HTML file; overwritten if present.
    comparison
        Two or more entrants on the test queries, the baseline first.
    subject
        Name of the entrant that the report is about; by default the second.
    **settings
        Parameters of `collect`: title, name_column, judged, validation, seed.

    Returns
    -------
    Report
        The contents of the report.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from kinrank.datasets import make_two_camps
    >>> from kinrank.study.study import Study
    >>> camps = make_two_camps(n_queries=90, seed=0)
    >>> study = Study.split(camps[:60], camps[60:])
    >>> comparison = study.compare([study.enter(name) for name in ("single", "knn(n_neighbors=10)")])
    >>> with TemporaryDirectory() as folder:
    ...     report = write_report(f"{folder}/report.html", comparison, judged=camps[:60])
    >>> report.difference.paired.losses
    0
    """
    report = collect(comparison, subject, **settings)
    write_page(path, report)
    return report


def write_page(path: str | os.PathLike[str], report: Report) -> int:
    """Write the page of a report atomically and return its size in bytes."""
    # A name may contain a lone surrogate, which UTF-8 cannot encode.
    page = render(report).encode("utf-8", "replace")
    with atomic_writer(path) as stream:
        stream.write(page)
    return len(page)
