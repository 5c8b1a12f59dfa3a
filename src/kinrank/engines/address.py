"""Engines by address: ``elasticsearch+http://127.0.0.1:9200/movies``."""

from __future__ import annotations

import base64
import os
import re
from typing import Any

from kinrank.engines.base import Engine
from kinrank.engines.feature_set import FeatureSet
from kinrank.errors import ParameterError
from kinrank.registry import Registry

FORM = "ENGINE+http://HOST:PORT/INDEX"
_HOST = r"(?:[^/?#,\s]*@)?(?:[\w.-]+|\[[^\]/\s]+\])(?::\d+)?"
_ADDRESS = re.compile(
    rf"(?P<engine>[\w-]+)\+(?P<scheme>https?)://(?P<hosts>{_HOST}(?:,{_HOST})*)(?P<index>/[^/\s]*)?/?"
)
_PORT = re.compile(r":\d+$")
_CREDENTIALS = {"api_key", "basic_auth", "bearer_auth", "headers", "http_auth"}

ENGINES = Registry(
    "engine",
    {
        "elasticsearch": "kinrank.engines.elasticsearch:ElasticsearchEngine",
        "opensearch": "kinrank.engines.opensearch:OpenSearchEngine",
    },
)


def connect(address: str, features: FeatureSet | str | os.PathLike[str] | None = None, **options: Any) -> Engine:
    """Open an index of an engine. Nothing is sent before the first call.

    Parameters
    ----------
    address
        ``ENGINE+http://HOST:PORT/INDEX`` with the name of the engine in `ENGINES`; https likewise, several hosts with
        commas between them, ``USER:PASSWORD@`` before a host where it needs one.
    features
        A `FeatureSet`, or the file of one.
    options
        What the engine's class takes: ``timeout``, ``connections``, and whatever its client takes, such as ``api_key``
        or ``ca_certs``.

    Notes
    -----
    Where neither address nor options say who asks, the environment does: ``KINRANK_ENGINE_API_KEY``, or
    ``KINRANK_ENGINE_USER`` and ``KINRANK_ENGINE_PASSWORD``.

    Examples
    --------
    >>> with connect("elasticsearch+http://127.0.0.1:9200,127.0.0.1:9201/movies", timeout=2.0) as engine:
    ...     engine.hosts, engine.index_name
    (['http://127.0.0.1:9200', 'http://127.0.0.1:9201'], 'movies')
    >>> connect("http://127.0.0.1:9200/movies")
    Traceback (most recent call last):
    ...
    kinrank.errors.ParameterError: 'http://127.0.0.1:9200/movies' is no address of an engine: write ...
    """
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise ParameterError(
            f"{redact_passwords(address)!r} is no address of an engine: write {FORM}, where ENGINE is one of "
            f"{', '.join(ENGINES)}, signs in a password as in URLs (%23 for #)"
        )
    port = {"http": 80, "https": 443}[match["scheme"]]
    hosts = [
        f"{match['scheme']}://{host}" if _PORT.search(host) else f"{match['scheme']}://{host}:{port}"
        for host in match["hosts"].split(",")
    ]
    if features is not None and not isinstance(features, FeatureSet):
        features = FeatureSet.read(features)
    index = (match["index"] or "").strip("/")
    if "@" not in match["hosts"] and not _CREDENTIALS & options.keys():
        options |= _authorization()
    make = ENGINES[match["engine"]]
    try:
        engine: Engine = make(hosts, index, features, **options)
    except ParameterError:
        raise
    except ValueError as error:  # a client's, who repeats the address with the password in it
        raise ParameterError(
            redact_passwords(f"{address!r} cannot be opened ({error}); check the hosts and the client's settings")
        ) from None
    return engine


def _authorization() -> dict[str, Any]:
    """Who asks, from the environment: a command line can be read by everyone on the machine."""
    key, user, password = (os.environ.get(f"KINRANK_ENGINE_{name}", "") for name in ("API_KEY", "USER", "PASSWORD"))
    if not key and not user:
        return {}
    basic = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"headers": {"authorization": f"ApiKey {key}" if key else f"Basic {basic}"}}


def redact_passwords(text: str) -> str:
    """A text with addresses in it, as it may be shown to others.

    Examples
    --------
    >>> redact_passwords("none of https://me:secret@a:9200, https://b:9200")
    'none of https://...@a:9200, https://b:9200'
    """
    return re.sub(r"//(?:\S*|[^/]*)@", "//...@", text)  # some type slashes or spaces in a password
