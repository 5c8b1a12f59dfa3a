"""Render the pages of results as Markdown: the page on research, and what follows the method on the page of a paper."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from reproduction import PAPERS, results
from reproduction.catalog import experiments_of
from reproduction.claims import DATA, KINDS, Claim, Verdict, expectations
from reproduction.items import ALGORITHMS, collections_of
from reproduction.markdown import details, number, table
from reproduction.plots import FOLDER
from reproduction.results import Results
from reproduction.sections import atvt, geng, local_models, sser

SUMMARY = "research/index.md"
FILES = {paper: f"research/{paper}.md" for paper in PAPERS}
"""The page of each paper."""
MARK = "<!-- What follows is written by: python -m reproduction.page -->"
"""The line of a paper's page that ends what is written by hand: the method, and how to use it."""
SECTIONS: dict[str, Callable[[Mapping[str, Any]], Iterator[str]]] = {
    "geng": geng.render,
    "local-models": local_models.render,
    "atvt": atvt.render,
    "sser": sser.render,
}

_INTRODUCTION = """\
# Research

kinrank began as an implementation of four papers. Every algorithm, table and figure of them is here: as a class, as a
command that measures it again on public data, and with a verdict. [As published, and where not](as-published.md) lists
every deviation with its effect. [What the papers left open](left-open.md) is what the rest of kinrank is about. [A
notebook](../notebooks/4-when-knn-wins.md) shows when KNN wins and when it does not.

From a checkout of the repository:

<!-- not run -->
```console
$ python -m reproduction --list      # every table and figure, with its command
$ python -m reproduction geng:fig7   # generated data; the figure is a file
```

Generated worlds need no data. Others read the [judged collections](../benchmarks.md#the-data) in `--data FOLDER` or
`KINRANK_DATA`; what is missing is named, with where to get it. Name a paper, or `all`, to measure more. Figures and
pages are written into `reproduction/results`. Finished work is stored, so that an interrupted run resumes. The exit
code is 3 if a verdict is not the expected one. The claims, the range in which each holds and the reasons are in
`reproduction/expected/*.toml`; this page is generated from them and from the output, and tests compare both."""

_READING = """\
The *thesis* is what a paper is about; a claim is *reproduced* if its figure lies in the range that the claim requires.
*Undecided* means that the figures do not tell: too few queries, or a detail that the paper leaves open decides. Counts
of details are not tests: many are differences without one.
Generated worlds are built to have the effect: they show that a method works as described, not that it helps. Many
differences could be due to chance, so tables show a p-value where there is a test.

About twenty descriptions of MSRD's queries had been measured on its test queries before the settings used here were
chosen on its validation queries ([KNN](../project/knn.md#gain-on-movie-search)). Its p-values are therefore optimistic.
They are by movie, because queries about the same movie are not independent. Those of Wilcoxon's test (Zha et al.) are
by query."""

_SHOWN = {
    "geng": ("intents", "Figure 7", "NDCG at 1, 3, 5, 10 and its mean, five methods, on generated intents"),
    "local-models": ("oracles", "Figures 2 and 3", "MAP by number of clusters, and of always the r-th best model"),
    "atvt": ("atvt", "Tables 2 and 3", "Gain in DCG@5 by setting on three collections"),
    "sser": ("ensemble", "Figures 1, 2 and 3", "MAP of the methods, precision by rank, and MAP by γ"),
}
"""The picture of each paper: plot, what it shows of the paper, and its text alternative."""

_VERDICTS = ("reproduced", "partly", "not reproduced")


def render(measured: Results) -> dict[str, str]:
    """Return the text of each page by file name: the page on research, and the results of each measured paper."""
    every = {paper: verdicts for paper, verdicts in measured.verdicts().items() if paper in measured.papers}
    if not every:
        return {}
    pages = {SUMMARY: _summary(measured, every)}
    pages |= {FILES[paper]: _paper(paper, verdicts, measured.figures) for paper, verdicts in every.items()}
    return {file: "\n\n".join(blocks) + "\n" for file, blocks in pages.items()}


def _summary(measured: Results, every: Mapping[str, list[Verdict]]) -> Iterator[str]:
    yield _INTRODUCTION
    yield "## Algorithms"
    yield _algorithms(measured, every)
    yield "## What the papers are about"
    yield _theses(every)
    yield _READING
    yield "## Next to the papers' own numbers"
    for paper, verdicts in every.items():
        yield from _next_to_it(paper, verdicts)
    yield "## All claims"
    yield _totals(every)
    yield _time(measured)


def _algorithms(measured: Results, papers: Iterable[str]) -> str:
    return table(
        ["algorithm", "equation", "class", "command", "verdict"],
        [
            [
                f"[{each.name}]({FILES[each.paper].partition('/')[2]})",
                each.equation,
                f"`{each.code}`",
                f"`python -m reproduction {each.item}`",
                each.verdict(measured),
            ]
            for each in ALGORITHMS
            if each.paper in papers
        ],
    )


def _next_to_it(paper: str, verdicts: list[Verdict]) -> Iterator[str]:
    plot, source, alternative = _SHOWN[paper]
    yield f"### {PAPERS[paper].partition(',')[0]}: {source}"
    yield f"![{alternative}](../{FOLDER}/reproduction-{plot}.svg)"
    yield table(
        ["in the paper", "claim", "the paper", "here", "verdict"],
        [
            [each.claim.source, each.claim.statement, each.claim.published, _exactly(each), _marked(each)]
            for each in verdicts
            if each.claim.published
        ],
    )


def _paper(paper: str, verdicts: list[Verdict], figures: Mapping[str, Any]) -> Iterator[str]:
    yield "## Measured again"
    yield from SECTIONS[paper](figures)
    holding = sum(verdict.holds for verdict in verdicts)
    yield details(
        f"All {len(verdicts)} claims: {holding} reproduced, {len(verdicts) - holding} not",
        f"`{expectations(paper).command}` reads {_reads(paper)}. [Research](index.md) explains the words.",
        _claims(verdicts),
        *_not_reproduced(verdicts),
        "**Not measured**",
        "\n".join(f"- **{each.what}**: {each.reason}" for each in expectations(paper).omitted),
    )
    yield from _mended(verdicts)


def _time(measured: Results) -> str:
    total, run = sum(measured.cpu_minutes(paper) for paper in measured.papers), measured.run
    text = f"Measured with kinrank {measured.version} in {total:.1f} minutes of CPU time"
    if not run:
        return f"{text}, collected from several runs of single experiments."
    how = "resumed an interrupted one and took another" if run["resumed"] else "took"
    return f"{text}. The run {how} {run['minutes']:g} minutes with {run['processes']:g} processes on a shared machine."


def _mended(verdicts: list[Verdict]) -> Iterator[str]:
    """Yield the table of the claims whose comparison was changed since the first version of the page."""
    rows = [
        [
            f"{each.claim.source}: {each.claim.statement}",
            each.claim.before,
            f"{_marked(each)} ({format_value(each.value)})",
            each.claim.mended,
        ]
        for each in verdicts
        if each.claim.before
    ]
    if rows:
        yield details(
            f"{len(rows)} claims measured in another way than in the first version of this page: before and now",
            table(["claim", "before", "now", "what changed"], rows),
        )


def _theses(every: Mapping[str, list[Verdict]]) -> str:
    rows = [
        [f"[{PAPERS[paper].partition(',')[0]}]({FILES[paper].partition('/')[2]})", expectations(paper).thesis]
        + [thesis_verdict(paper, verdicts, data) for data in DATA]
        + [expectations(paper).why]
        for paper, verdicts in every.items()
    ]
    return table(["paper", "thesis", *(f"on {data} data" for data in DATA), "why"], rows)


def thesis_verdict(paper: str, verdicts: list[Verdict], data: str) -> str:
    """Return the verdict on the thesis of a paper on one kind of data, with counts."""
    holds = [each.holds for each in verdicts if (each.claim.kind, each.claim.data) == ("thesis", data)]
    if not holds:
        return "not measured"
    word = _VERDICTS[0] if all(holds) else _VERDICTS[1] if any(holds) else _VERDICTS[2]
    if data in expectations(paper).undecided:
        word = "undecided"
    return f"**{word}** ({sum(holds)} of {len(holds)})"


def _totals(every: Mapping[str, list[Verdict]]) -> str:
    header = ["claims reproduced", *(f"{kind}, {data}" for kind in KINDS for data in DATA)]
    groups = {PAPERS[paper].partition(",")[0]: verdicts for paper, verdicts in every.items()}
    groups["together"] = [each for verdicts in every.values() for each in verdicts]
    rows = []
    for name, verdicts in groups.items():
        cells: list[object] = [name]
        for kind in KINDS:
            for data in DATA:
                some = [each.holds for each in verdicts if (each.claim.kind, each.claim.data) == (kind, data)]
                cells.append(f"{sum(some)} of {len(some)}" if some else "")
        rows.append(cells)
    return table(header, rows)


def _claims(verdicts: list[Verdict]) -> str:
    return table(
        CLAIMS_HEADER,
        [
            [
                each.claim.source,
                f"{each.claim.kind}, {each.claim.data}",
                each.claim.statement,
                condition(each.claim),
                format_value(each.value),
                _marked(each),
            ]
            for each in verdicts
        ],
    )


CLAIMS_HEADER = ["in the paper", "kind", "claim", "holds if", "measured", "verdict"]


def _reads(paper: str) -> str:
    return ", ".join(f"`{folder}`" for folder in collections_of(experiments_of(paper)))


def _not_reproduced(verdicts: list[Verdict]) -> Iterator[str]:
    reasons: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        if not verdict.holds:
            reasons.setdefault(verdict.claim.reason or "Unknown: it was expected to hold.", []).append(verdict)
    if reasons:
        yield "**What did not reproduce, and why**"
        yield "\n".join(
            f"- {'; '.join(f'{each.claim.statement} ({each.claim.source})' for each in some)}. **Why:** {reason}"
            for reason, some in reasons.items()
        )


def _marked(verdict: Verdict) -> str:
    return str(verdict) if verdict.holds else f"**{verdict}**"


def condition(claim: Claim) -> str:
    """Return the range in which a claim holds, in words."""
    if math.isinf(claim.low):
        return f"at most {number(claim.high)}"
    if math.isinf(claim.high):
        return f"at least {number(claim.low)}"
    return f"{number(round(claim.low, 6))} to {number(round(claim.high, 6))}"


def format_value(value: float) -> str:
    """Format a figure without the rounding error of a subtraction."""
    return number(round(value, 6))


def _exactly(verdict: Verdict) -> str:
    """Format a figure; a p-value below any rounding keeps its exponent."""
    return f"{verdict.value:.1g}" if 0 < verdict.value < 1e-6 else format_value(verdict.value)


def write(measured: Results, folder: Path) -> list[Path]:
    """Write the pages into a folder and return the files written. What is above `MARK` in a page stays."""
    written = []
    for file, text in render(measured).items():
        target = folder / file
        target.parent.mkdir(exist_ok=True)
        target.write_text(_above(file, target) + text, encoding="utf-8")
        written.append(target)
    return written


def _above(file: str, target: Path) -> str:
    """Return what comes before the results on a page: what is there already, or else the title of the paper."""
    if file == SUMMARY:
        return ""
    if target.exists() and MARK in (found := target.read_text(encoding="utf-8")):
        return f"{found.partition(MARK)[0]}{MARK}\n\n"
    paper = next(paper for paper, page in FILES.items() if page == file)
    return f"# {PAPERS[paper]}\n\n{MARK}\n\n"


def main(docs: Path = results.STORED.parent) -> None:
    """Write the pages again from docs/reproduction.json: ``python -m reproduction.page``."""
    write(Results.read(docs / results.FILE), docs)


if __name__ == "__main__":
    main()
