"""The reports on MSRD and MQ2007 are below 2 MB, make no requests and cause no console messages.

Each is opened in headless Chromium at desktop and phone width, in light and dark mode, and printed. The MSRD report
compares KinRanker, a linear model per query and one linear model with tuned LightGBM, all fitted on the training
queries and tuned without the test queries. The MQ2007 report (fold 1) compares a model per query with k = 400 with one
model. ``KINRANK_REPORTS`` sets a folder for the reports and screenshots.
"""

from __future__ import annotations

import csv
import gzip
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import data_dir, letor_folds, log_progress, msrd
from benchmarks.knn_msrd import best_trees
from kinrank import KinRanker, KnnRanker, QuerySet, SingleRanker
from kinrank.kin import Describer
from kinrank.measure import AP, NDCG, RR
from kinrank.rankers import Ranker
from kinrank.registry import import_extra
from kinrank.study._entrants import fit_and_evaluate
from kinrank.study.comparison import compare
from kinrank.study.report import collect, write_page
from kinrank.study.report._page import headline

MEASURES = (NDCG @ 10, NDCG @ 1, AP, RR)
VIEWS: dict[str, dict[str, Any]] = {
    "desk": {"viewport": {"width": 1280, "height": 900}},
    "desk dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2},
    "phone dark": {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"},
}
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]


def run() -> dict[str, object]:
    """Return the headline, size and duration of each report, and what the browser found."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(os.environ.get("KINRANK_REPORTS", temporary))
        folder.mkdir(parents=True, exist_ok=True)
        parts = movies()
        figures = {
            "MSRD": make_report(folder / "msrd.html", "Movie search (MSRD)", parts, movie_rankers(*parts[:2])),
            "MQ2007": make_report(
                folder / "mq2007.html", "LETOR MQ2007, fold 1", next(letor_folds("MQ2007")), letor_rankers()
            ),
        }
        for name, file in (("MSRD", "msrd.html"), ("MQ2007", "mq2007.html")):
            figures[name]["browser"] = check_in_browser(folder / file)
    return dict(figures)


def movie_rankers(train: QuerySet, vali: QuerySet) -> dict[str, Ranker]:
    """Return tuned LightGBM, KinRanker, the KNN ranker chosen by `knn_msrd`, and one linear model."""
    describer = Describer("summaries+text", reference="bm25_all", n_components=46)
    return {
        "LightGBM": best_trees(train, vali),
        "kin": KinRanker(group_column="movie", settings={"reference": "bm25_all"}),
        "knn": KnnRanker(400, describe=describer, neighbor_weights="gaussian", prior="global", prior_strength=0.1),
        "one linear model": SingleRanker("rankrls"),
    }


def letor_rankers() -> dict[str, Ranker]:
    """Return one model and a model per query."""
    return {"one model": SingleRanker("rankrls", scale="none"), "knn": KnnRanker(400, scale="none", reference=24)}


def movies() -> tuple[QuerySet, QuerySet, QuerySet]:
    """Return the parts of MSRD with the texts of the queries."""
    texts = {}
    with gzip.open(data_dir() / "text" / "msrd" / "movies-judgments.tsv.gz", "rt", encoding="utf-8") as stream:
        for row in csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE):
            texts[row[0].removeprefix("qid:")] = row[1]
    parts = msrd()

    def with_texts(part: QuerySet) -> QuerySet:
        text = np.array([texts[str(qid)] for qid in part.qid.tolist()])
        return part.replace(query_columns={**part.query_columns, "text": text})

    return with_texts(parts["train"]), with_texts(parts["vali"]), with_texts(parts["test"])


def make_report(
    file: Path, title: str, parts: tuple[QuerySet, QuerySet, QuerySet], rankers: dict[str, Ranker]
) -> dict[str, Any]:
    """Fit and compare rankers, and write the report."""
    train, _, test = parts
    entrants = [fit_and_evaluate(name, ranker, train, test, MEASURES) for name, ranker in rankers.items()]
    comparison = compare(test, entrants)
    start = time.perf_counter()
    report = collect(comparison, title=title, judged=train)
    size = write_page(file, report)
    seconds = time.perf_counter() - start
    log_progress(f"{title}: {headline(report)}, {size:,} bytes, {seconds:.0f} s")
    paired = report.difference.paired
    return {
        "headline": headline(report),
        "answer": None if report.answer is None else report.answer.text,
        "interval": [round(end, 4) for end in paired.interval],
        "p Holm": float(f"{report.difference.p_holm:.2g}"),
        "bytes": size,
        "seconds after ranking": round(seconds, 1),
    }


def check_in_browser(file: Path) -> dict[str, Any]:
    """Open the report in every view, save screenshots, and return console messages, requests and overflow."""
    playwright = import_extra("playwright.sync_api", "dev")
    messages: list[str] = []
    requests: set[str] = set()
    overflow = {}
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for view, settings in VIEWS.items():
            tab = browser.new_context(**settings).new_page()
            tab.on("console", lambda message: messages.append(message.text))
            tab.on("pageerror", lambda error: messages.append(str(error)))
            tab.on("request", lambda request: requests.add(request.url))
            tab.goto(file.as_uri())
            overflow[view] = tab.evaluate("document.documentElement.scrollWidth - innerWidth")
            tab.screenshot(path=file.with_suffix(f".{view.replace(' ', '-')}.png"), full_page=True)
            if view == "desk":
                tab.pdf(path=file.with_suffix(".pdf"), format="A4")
        browser.close()
    return {"console": messages, "loads": len(requests - {file.as_uri()}), "overflow": overflow}
