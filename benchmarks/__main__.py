"""Run a benchmark: ``python -m benchmarks NAME``. The last line printed is its figures as JSON."""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import sys
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parent
SHARED = {"__init__", "__main__", "common", "memory_collections", "memory_meaning"}


def names() -> list[str]:
    """Return the names of all benchmarks."""
    return sorted(file.stem for file in FOLDER.glob("*.py") if file.stem not in SHARED)


def claim(name: str) -> str:
    """Return the first line of a benchmark's docstring, without importing the packages it needs."""
    docstring = ast.get_docstring(ast.parse((FOLDER / f"{name}.py").read_text(encoding="utf-8")))
    return (docstring or "").partition("\n")[0]


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", nargs="?", choices=names(), metavar="NAME", help="benchmark to run")
    parser.add_argument("--list", action="store_true", help="list the benchmarks with their claims and exit")
    arguments, rest = parser.parse_known_args()
    if arguments.list:
        for name in names():
            print(f"{name:24} {claim(name)}")
        return 0
    if arguments.name is None:
        parser.error("NAME is required; --list shows the benchmarks")
    module = importlib.import_module(f"benchmarks.{arguments.name}")
    figures = module.run(**_options(module, rest, f"{parser.prog} {arguments.name}"))
    sys.stdout.flush()
    print(json.dumps({"benchmark": arguments.name, **figures}))
    return 0


def _options(module: ModuleType, words: list[str], prog: str) -> dict[str, str]:
    """Parse the options of one benchmark.

    Its ``OPTIONS`` maps each name to the choices, the default first; to False, if it is a flag; or to a text, the
    default of an option that takes any.
    """
    parser = argparse.ArgumentParser(prog=prog)
    for option, choices in getattr(module, "OPTIONS", {}).items():
        if choices is False:
            parser.add_argument(f"--{option}", action="store_true")
        elif isinstance(choices, str):
            parser.add_argument(f"--{option}", default=choices)
        else:
            parser.add_argument(f"--{option}", choices=choices, default=choices[0])
    return vars(parser.parse_args(words))


if __name__ == "__main__":
    sys.exit(main())
