"""``kinrank rules``: pin, hide and boost documents for a query, in the database of a service."""

from __future__ import annotations

import getpass
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from kinrank.cli import console
from kinrank.cli.databases import Address, check_exists
from kinrank.cli.options import AsJson
from kinrank.errors import ParameterError

if TYPE_CHECKING:
    from kinrank.serve.rules.preview import Preview
    from kinrank.serve.rules.rule import Rule


def rules(
    address: Address,
    query: Annotated[str | None, typer.Option(metavar="TEXT", help="Text of the query that a rule is for.")] = None,
    pin: Annotated[str | None, typer.Option(metavar="DOCUMENT", help="Document to put at a place.")] = None,
    hide: Annotated[str | None, typer.Option(metavar="DOCUMENT", help="Document to leave out.")] = None,
    boost: Annotated[str | None, typer.Option(metavar="DOCUMENT", help="Document to move by some places.")] = None,
    places: Annotated[
        int | None,
        typer.Option(metavar="N", help="Place of a pin (by default 1), or places that a boost moves up; down if < 0."),
    ] = None,
    also_similar: Annotated[
        bool, typer.Option("--also-similar", help="Also for queries like this one, see --preview.")
    ] = False,
    days: Annotated[float, typer.Option(help="Days that the rule holds.")] = 30.0,
    note: Annotated[str, typer.Option(metavar="TEXT", help="Why, for the history.")] = "",
    author: Annotated[
        str | None, typer.Option(metavar="NAME", help="Who changes rules.", show_default="your user name")
    ] = None,
    preview: Annotated[
        bool, typer.Option("--preview", help="Show the known queries that a rule would be for, and add none.")
    ] = False,
    remove: Annotated[int | None, typer.Option(metavar="RULE", help="Number of the rule to end.")] = None,
    history: Annotated[bool, typer.Option("--history", help="List also rules that ended.")] = False,
    as_json: AsJson = False,
) -> None:
    """Pin, hide and boost documents for a query, and list such rules."""
    from kinrank.serve.audit import ACTOR
    from kinrank.serve.database import open_database
    from kinrank.serve.rules.preview import preview as preview_of
    from kinrank.serve.rules.rule import Action, Rule
    from kinrank.serve.rules.store import RuleStore

    given = {Action.PIN: pin, Action.HIDE: hide, Action.BOOST: boost}
    wanted = [(action, document) for action, document in given.items() if document is not None]
    if len(wanted) > 1 or (wanted and query is None) or (query is not None and not (wanted or preview)):
        raise ParameterError("a rule is --query TEXT with one of --pin, --hide and --boost; or pass --preview")
    if preview and query is None:
        raise ParameterError("--preview needs --query TEXT")
    if preview or not wanted:
        check_exists(address)
    store = RuleStore(open_database(address))
    who = author or getpass.getuser()
    ACTOR.set(who)
    try:
        if preview and query is not None:
            _show_preview(preview_of(store.database, query, also_similar=also_similar), as_json=as_json)
            return
        for action, document in wanted:
            rule = Rule.new(
                query or "",
                action,
                document,
                places=places,
                also_similar=also_similar,
                author=who,
                note=note,
                days=days,
            )
            console.info(f"{store.database}: added {store.add(rule).words}")
        if remove is not None:
            removed = store.remove(remove, who)
            if removed is None:
                raise ParameterError(f"there is no rule {remove} that holds: kinrank rules {store.database} lists them")
            console.info(f"{store.database}: removed {removed.words}")
        _show_rules(store.rules(history=history), as_json=as_json)
    finally:
        store.database.close()


def _show_rules(found: list[Rule], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps([vars(rule) | {"words": rule.words} for rule in found], indent=2))
        return
    table = Table(box=None, pad_edge=False)
    for title in ("author", "until", "rule", "note"):
        table.add_column(title)
    for rule in found:
        ended = "" if rule.removed is None else f" (removed by {rule.removed_by} {_date(rule.removed)})"
        table.add_row(rule.author, _date(rule.expires), rule.words + ended, rule.note)
    console.print_result(table)


def _show_preview(found: Preview, *, as_json: bool) -> None:
    if as_json:
        rows = [vars(each) for each in found.queries]
        typer.echo(json.dumps({"queries": rows, "share": found.share, "known": found.known}, indent=2))
        return
    share = "" if found.share is None else f", {found.share:.2%} of what people looked at"
    console.info(f"{len(found.queries)} of {found.known} known queries{share}")
    table = Table(box=None, pad_edge=False)
    for title in ("query", "similarity", "share"):
        table.add_column(title)
    for each in found.queries:
        table.add_row(each.query, f"{each.similarity:.2f}", "" if each.share is None else f"{each.share:.2%}")
    console.print_result(table)


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ", timespec="minutes")
