"""Which addresses the server connects to for its users: public ones, and those in networks that the operator allows.

Added streams and webhooks name hosts. Without a check they would reach what only the server can reach: its own
machine, its network, and a cloud's metadata service at 169.254.169.254.
"""

import http.client
import ipaddress
import re
import socket
import urllib.request
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Self
from urllib.parse import urlsplit

from ballcast.core.errors import InputError
from ballcast.video.addresses import scheme_of

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
RECEIVING = frozenset({"udp", "rtp"})  # take what is sent to this machine, and connect to nothing
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]{1,64})\]|([\w.-]{0,255}))(?::\d{0,5})?", re.ASCII)


@dataclass(frozen=True)
class NetworkPolicy:
    """Allows public addresses, and those in the networks `allowed`."""

    allowed: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = ()

    @classmethod
    def parse(cls, networks: Iterable[str]) -> Self:
        """The policy of `--allow-network`; an InputError if one is no network."""
        found = []
        for text in networks:
            try:
                found.append(ipaddress.ip_network(text))
            except ValueError as error:
                raise InputError(f"--allow-network {text}: {error}; give a network such as 10.0.0.0/8") from None
        return cls(tuple(found))

    def allows(self, address: str, *, receiving: bool = False) -> bool:
        """Whether an IP address may be used. receiving: multicast and unspecified addresses are fine, too."""
        ip: IpAddress = ipaddress.ip_address(address.partition("%")[0])
        if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
            ip = ip.ipv4_mapped
        if any(ip in network for network in self.allowed):
            return True
        if ip.is_multicast or ip.is_unspecified:
            return receiving
        tunnelled = isinstance(ip, ipaddress.IPv6Address) and (ip.sixtofour or ip.teredo or ip.is_site_local)
        return ip.is_global and not ip.is_reserved and not tunnelled

    def check_url(self, url: str) -> None:
        """Raise an InputError if the host of a URL has an address that is not allowed, or cannot be resolved."""
        try:
            self._check(url)
        except OSError:
            raise InputError("its host name cannot be resolved") from None

    def check_new(self, url: str) -> None:
        """The same for a URL that is stored, and checked again when it is used: its host may not be there yet."""
        with suppress(OSError):
            self._check(url)

    def check_peer(self, connection: socket.socket) -> None:
        """Raise an OSError if a connection leads to an address that is not allowed."""
        if not self.allows(connection.getpeername()[0]):
            raise OSError("it leads to what is not a public address")

    def _check(self, url: str) -> None:
        receiving = scheme_of(url) in RECEIVING
        try:
            found = socket.getaddrinfo(_host(url) or "0.0.0.0", None, type=socket.SOCK_STREAM)
        except UnicodeError:  # a part of the name is empty or too long
            raise OSError("no such host") from None
        for *_, place in found:
            address = str(place[0]).partition("%")[0]  # without the zone of a link-local address
            if not self.allows(address, receiving=receiving):
                raise InputError(
                    "its host is not a public address, as streams and webhooks need; to allow it, start the server "
                    f"with --allow-network {address}"
                )


def _host(url: str) -> str:
    """The host of a URL, "" for none; an InputError where programs could disagree about which it is."""
    authority = re.split(r"[/?#]", url.partition("://")[2], maxsplit=1)[0]
    found = _HOST.fullmatch(authority.rpartition("@")[2])
    if found is None:
        raise InputError("its host is neither a name in ASCII nor an IP address")
    return found[1] or found[2] or ""


def checked_opener(policy: NetworkPolicy, url: str, *handlers: Any) -> urllib.request.OpenerDirector:
    """An opener for a URL that checks where each connection leads before anything is sent; a proxy's may lead anywhere.

    handlers: of `urllib.request.build_opener`.
    """
    parts = urlsplit(url)
    proxied = parts.scheme in urllib.request.getproxies() and not urllib.request.proxy_bypass(parts.netloc)
    return urllib.request.build_opener(*handlers, *(() if proxied else (_CheckedHandler(policy),)))


class _CheckedConnection(http.client.HTTPConnection):
    def __init__(self, policy: NetworkPolicy, host: str, **how: Any) -> None:
        super().__init__(host, **how)
        self._policy = policy

    def connect(self) -> None:
        super().connect()
        self._policy.check_peer(self.sock)


class _CheckedTlsConnection(_CheckedConnection, http.client.HTTPSConnection):
    pass


class _CheckedHandler(urllib.request.HTTPSHandler, urllib.request.HTTPHandler):
    def __init__(self, policy: NetworkPolicy) -> None:
        super().__init__()
        self._policy = policy

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(_CheckedConnection, self._policy), request)

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(_CheckedTlsConnection, self._policy), request)
