"""Generate pages of the site: the reference, and the documents in the root of the repository.

mkdocs-gen-files runs this at every build. It finds all modules of the package, so a new module needs no entry.
"""

from __future__ import annotations

import ast
from pathlib import Path

import mkdocs_gen_files

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "kinrank"
# Documents in the root of the repository, and their pages.
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
ASSETS = ["LICENSE"]


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
        text = (ROOT / source).read_text().replace("](docs/", "](")
        for other, other_page in PAGES.items():
            text = text.replace(f"]({other}", f"]({other_page}")
        with mkdocs_gen_files.open(page, "w") as stream:
            stream.write(text)
    for asset in ASSETS:
        with mkdocs_gen_files.open(asset, "w") as stream:
            stream.write((ROOT / asset).read_text())


def write_reference() -> list[dict[str, str]]:
    """Write a page for each module and return the navigation entries."""
    entries = []
    for name in modules():
        page = f"reference/{name}.md"
        with mkdocs_gen_files.open(page, "w") as stream:
            stream.write(f"# {name}\n\n::: {name}\n")
        entries.append({name: page})
    return entries


write_root_documents()
mkdocs_gen_files.FilesEditor.current().config["nav"].append({"Reference": write_reference()})
