"""Open an engine by its address: ``elasticsearch+http://127.0.0.1:9200/movies``."""

from __future__ import annotations

import base64
import os
import re
from typing import Any

from kinrank.data.filesystems import redact_passwords
from kinrank.engines.base import Engine
from kinrank.engines.features import FeatureSet
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
        "elasticsearch": "kinrank.engines.lucene:ElasticsearchEngine",
        "opensearch": "kinrank.engines.lucene:OpenSearchEngine",
    },
)


def connect(address: str, features: FeatureSet | str | os.PathLike[str] | None = None, **options: Any) -> Engine:
    """Open an index of a search engine. Nothing is sent until the first call.

    Parameters
    ----------
    address
        ``ENGINE+http://HOST:PORT/INDEX`` or ``ENGINE+https://...``, where ENGINE is a name in `ENGINES`. Separate
        several hosts with commas; put ``USER:PASSWORD@`` before a host that needs it.
    features
        A `FeatureSet`, or the path of a feature file.
    options
        Passed to the engine's class: ``timeout``, ``connections``, and any option of the official client, such as
        ``api_key`` or ``ca_certs``.

    Notes
    -----
    Without credentials in the address or the options, they are read from the environment:
    ``KINRANK_ENGINE_API_KEY``, or ``KINRANK_ENGINE_USER`` and ``KINRANK_ENGINE_PASSWORD``.

    Examples
    --------
    >>> with connect("elasticsearch+http://127.0.0.1:9200,127.0.0.1:9201/movies", timeout=2.0) as engine:
    ...     engine.hosts, engine.index_name
    (['http://127.0.0.1:9200', 'http://127.0.0.1:9201'], 'movies')
    >>> connect("http://127.0.0.1:9200/movies")
    Traceback (most recent call last):
    ...
    kinrank.errors.ParameterError: 'http://127.0.0.1:9200/movies' is not an engine address: use ENGINE+http://...
    """
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise ParameterError(
            f"{redact_passwords(address)!r} is not an engine address: use {FORM}, where ENGINE is one of "
            f"{', '.join(ENGINES)}; percent-encode special characters in a password (%23 for #)"
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
        options |= _credentials_from_environment()
    engine_class = ENGINES[match["engine"]]
    try:
        engine: Engine = engine_class(hosts, index, features, **options)
    except ParameterError:
        raise
    except ValueError as error:  # raised by the client, whose message may contain the password
        raise ParameterError(
            redact_passwords(f"cannot open {address!r} ({error}): check the hosts and the client options")
        ) from None
    return engine


def _credentials_from_environment() -> dict[str, Any]:
    # Other users of the machine can read a command line, but not the environment.
    key, user, password = (os.environ.get(f"KINRANK_ENGINE_{name}", "") for name in ("API_KEY", "USER", "PASSWORD"))
    if not key and not user:
        return {}
    basic = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"headers": {"authorization": f"ApiKey {key}" if key else f"Basic {basic}"}}
