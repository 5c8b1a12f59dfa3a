"""Run one claim of the docs and print its figures as one JSON line last: ``python -m benchmarks NAME``."""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import sys

import benchmarks

HELPERS = {"__main__", "common"}


def names() -> list[str]:
    """The claims there are."""
    return sorted(module.name for module in pkgutil.iter_modules(benchmarks.__path__) if module.name not in HELPERS)


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", nargs="?", choices=names(), metavar="NAME", help="the claim to run")
    parser.add_argument("--list", action="store_true", help="name the claims and stop")
    options, rest = parser.parse_known_args()
    if options.list:
        for name in names():
            claim = (importlib.import_module(f"benchmarks.{name}").__doc__ or "").strip().splitlines()[0]
            print(f"{name:24} {claim}")
        return 0
    if options.name is None:
        parser.error("say which claim to run; --list names them")
    module = importlib.import_module(f"benchmarks.{options.name}")
    figures = module.run(**_options_of(module, rest, parser))
    sys.stdout.flush()
    print(json.dumps({"benchmark": options.name, **figures}))
    return 0


def _options_of(module: object, rest: list[str], parser: argparse.ArgumentParser) -> dict[str, str]:
    """The ``--option value`` words of a claim that takes some: its OPTIONS, name to choices."""
    known = getattr(module, "OPTIONS", {})
    own = argparse.ArgumentParser(prog=parser.prog)
    for option, choices in known.items():
        own.add_argument(f"--{option}", choices=choices, default=choices[0])
    return vars(own.parse_args(rest))


if __name__ == "__main__":
    sys.exit(main())
