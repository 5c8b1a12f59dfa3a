"""Which names of hosts mean this machine."""

from __future__ import annotations

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """Return whether a host, as in a URL with or without port, is this machine.

    Examples
    --------
    >>> is_loopback("localhost:8080"), is_loopback("[::1]"), is_loopback("example.org")
    (True, True, False)
    """
    name = host.partition("]")[0].removeprefix("[") if host.startswith("[") and "]" in host else host
    if not host.startswith("[") and host.count(":") == 1:
        name = host.partition(":")[0]
    if name.lower() == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False
