"""Generate pages of the site: the reference, the notebooks, and the documents in the root of the repository.

mkdocs-gen-files runs this at every build. It finds all modules of the package, so a new module needs no entry.
"""

from __future__ import annotations

import ast
import base64
import json
from pathlib import Path
from typing import Any

import mkdocs_gen_files

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "kinrank"
# Documents in the root of the repository, and their pages.
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
ASSETS = ["LICENSE"]
# Addresses that pages had, and where what they showed is now. A part of a page is named after a #.
MOVED = {
    "reproduction": "research/",
    "reproduction-geng": "research/geng/",
    "reproduction-local-models": "research/local-models/",
    "reproduction-atvt": "research/atvt/",
    "reproduction-sser": "research/sser/",
    "papers": "research/",
    "papers#query-classes": "research/geng/",
    "papers#cluster-models-with-rank-aggregation": "research/local-models/",
    "papers#atvt-a-scale-for-each-query": "research/atvt/",
    "papers#ensembles-ser-and-sser": "research/sser/",
}
REDIRECT = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>This page has moved</title>
<link rel="canonical" href="../{target}">
<script>location.replace("../" + ({parts}[location.hash] || "{target}") + location.hash)</script>
<noscript><meta http-equiv="refresh" content="0; url=../{target}"></noscript>
</head>
<body><p>This page has moved to <a href="../{target}">{target}</a>.</p></body>
</html>
"""
NOTEBOOKS = ROOT / "examples" / "notebooks"
# The modules to browse and to search, by title. Pages of all others exist for links.
BROWSED = {
    "QuerySet": "kinrank.data.queryset kinrank.data.query_rows",
    "Reading and writing": "kinrank.data.parquet kinrank.data.delimited kinrank.data.letor kinrank.data.trec",
    "Splits": "kinrank.data.split",
    "Data sets": "kinrank.datasets.movies kinrank.datasets.letor kinrank.datasets.download "
    "kinrank.datasets.queries kinrank.datasets.click_log",
    "KinRanker": "kinrank.rankers.kin.ranker",
    "KinRanker settings": "kinrank.rankers.kin.settings",
    "KnnRanker": "kinrank.rankers.knn",
    "CellRanker": "kinrank.rankers.cells.ranker",
    "Other rankers": "kinrank.rankers.single kinrank.papers.query_class kinrank.papers.cluster "
    "kinrank.papers.atvt kinrank.papers.ensemble",
    "All rankers": "kinrank.rankers.base kinrank.rankers.intake kinrank.rankers.capabilities",
    "Learners": "kinrank.learn.rankrls kinrank.learn.ranksvm kinrank.learn.lambdamart",
    "Describer": "kinrank.kin.describer",
    "Encoders": "kinrank.kin.encoders kinrank.kin.encoders.ngrams",
    "Indexes": "kinrank.kin.indexes.base",
    "Measures and tests": "kinrank.measure.base kinrank.measure.measures kinrank.measure.significance",
    "Studies": "kinrank.study.study kinrank.study.headroom kinrank.study.comparison "
    "kinrank.study.validation kinrank.study.peers",
    "Clicks": "kinrank.clicks",
    "Engines": "kinrank.engines kinrank.engines.base kinrank.engines.features",
    "Scale": "kinrank.scale.training kinrank.parallel",
    "Memory": "kinrank.memory.memory kinrank.memory.why kinrank.memory.tables kinrank.memory.replay",
    "Adapters": "kinrank.adapters kinrank.adapters.langchain kinrank.adapters.llama_index kinrank.adapters.haystack "
    "kinrank.adapters.mcp",
    "PyTerrier": "kinrank.pyterrier",
    "Progress": "kinrank.progress",
    "Errors": "kinrank.errors",
}
# Members of rankers that other parts of the package call, not users.
INTERNAL = (
    "cell_part|check_features|check_learnable|coefficients|encode_blocks|encoded|explain_models|"
    "fit_alike|from_record|get_state|has_judged|k|learn_from_cells|learns_online|local_|near|"
    "offline_choice|offline_models|open_blocks|plan_|plan_cells|points|predict_local|prepare_to_learn|"
    "learn_choices|prepared|qid_at|restore_plan|set_cells|set_state|sized_for|storable_params|training_set_|tree_sample|without"
)
RANKER_OPTIONS = f"""    options:
      inherited_members: true
      show_root_heading: true
      filters: ["!^_", "!^({INTERNAL})$"]
"""
NO_SEARCH = "---\nsearch:\n  exclude: true\n---\n\n"


def modules() -> list[str]:
    """Return the names of all public modules with a docstring."""
    names = []
    for file in sorted(PACKAGE.rglob("*.py")):
        parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if not any(part.startswith("_") for part in name.split(".")) and ast.get_docstring(ast.parse(file.read_text())):
            names.append(name)
    return sorted(names)


def write_root_documents() -> None:
    """Copy the documents and point their links to the pages."""
    for source, page in PAGES.items():
        text = (ROOT / source).read_text().replace("](docs/", "](").replace("](examples/notebooks/", "](notebooks/")
        text = text.replace(".ipynb)", ".md)").replace('"docs/figures/', '"figures/')
        for other, other_page in PAGES.items():
            text = text.replace(f"]({other}", f"]({other_page}")
        with mkdocs_gen_files.open(page, "w") as stream:
            stream.write(text)
    for asset in ASSETS:
        with mkdocs_gen_files.open(asset, "w") as stream:
            stream.write((ROOT / asset).read_text())


def write_redirects() -> None:
    """Write a page at each address of `MOVED` that leads to the new one."""
    for page, target in MOVED.items():
        if "#" in page:
            continue
        parts = {f"#{old.partition('#')[2]}": new for old, new in MOVED.items() if old.startswith(f"{page}#")}
        with mkdocs_gen_files.open(f"{page}/index.html", "w") as stream:
            stream.write(REDIRECT.format(target=target, parts=json.dumps(parts)))


def write_notebooks() -> None:
    """Write a page for each notebook, with its outputs, and the notebook next to it."""
    for file in sorted(NOTEBOOKS.glob("*.ipynb")):
        with mkdocs_gen_files.open(f"notebooks/{file.name}", "w") as stream:
            stream.write(file.read_text())
        found = json.loads(file.read_text())["cells"]
        title, *cells = [_cell(cell, f"{file.stem}-{number}") for number, cell in enumerate(found)]
        heading, _, rest = title.partition("\n")
        download = f'[Download this notebook]({file.name}){{: download="" }}'
        text = "\n\n".join([heading, download, rest.strip(), *cells]) + "\n"
        with mkdocs_gen_files.open(f"notebooks/{file.stem}.md", "w") as stream:
            stream.write(text)


def _cell(cell: dict[str, Any], name: str) -> str:
    """Return a cell in Markdown: text with links that lead to pages, or code and what it printed and drew."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return source.replace("../../docs/", "../").replace(".ipynb)", ".md)")
    printed = "".join("".join(output.get("text", "")) for output in cell["outputs"])
    parts = [f"```python\n{source}\n```", *([f"```text\n{printed}```"] if printed else [])]
    pictures = [output["data"] for output in cell["outputs"] if "data" in output]
    for number, data in enumerate(pictures, 1):
        picture = f"{name}-{number}.png"
        with mkdocs_gen_files.open(f"notebooks/{picture}", "wb") as stream:
            stream.write(base64.b64decode(data["image/png"]))
        parts.append(f"![{''.join(data['text/plain'])}]({picture})")
    return "\n\n".join(parts)


def write_reference() -> list[dict[str, str]]:
    """Write a page for each title and each module, and return the navigation entries."""
    known = set(modules())
    entries = []
    for title, named in BROWSED.items():
        unknown = set(named.split()) - known
        if unknown:
            raise SystemExit(f"{title}: no module {sorted(unknown)}; correct BROWSED in scripts/docs_reference.py")
        page = f"reference/{title.lower().replace(' ', '-')}.md"
        with mkdocs_gen_files.open(page, "w") as stream:
            stream.write(f"# {title}\n")
            if title.endswith("Ranker"):  # the class, with the methods that are in its base classes
                stream.write(f"\n::: {named}.{title}\n{RANKER_OPTIONS}")
            else:
                stream.writelines(f"\n::: {name}\n" for name in named.split())
        entries.append({title: page})
    browsed = {name for named in BROWSED.values() for name in named.split()}
    for name in sorted(known - browsed):
        with mkdocs_gen_files.open(f"reference/{name}.md", "w") as stream:
            stream.write(f"{NO_SEARCH}# {name}\n\n::: {name}\n")
    return entries


write_root_documents()
write_redirects()
write_notebooks()
sections = (section for part in mkdocs_gen_files.FilesEditor.current().config["nav"] for section in part.items())
next(pages for title, pages in sections if title.startswith("Reference")).extend(write_reference())
