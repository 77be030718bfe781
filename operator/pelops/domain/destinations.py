"""Where connections may go: addresses that the installation allows, hosts that a Secret allows.

The address rules check the resolved address of each connection, because a name may resolve to any
address, and to another one a moment later.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Final, TypeAlias

IpAddress: TypeAlias = IPv4Address | IPv6Address
IpNetwork: TypeAlias = IPv4Network | IPv6Network

REDIS_HOSTS: Final = "pelops.dev/redis-hosts"  # annotation of a Secret
ROUTABLE: Final = "routable"  # in place of a network: every address that is not special
_HOST: Final = re.compile(r"[A-Za-z0-9_.%:-]{1,253}")
_PATTERN: Final = re.compile(r"[a-z0-9_*.-]{1,253}")

# Addresses that lead to this machine, to its network segment, or to a cloud's credentials.
_SPECIAL: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    (
        "metadata service",
        (
            "169.254.169.254/32",
            "169.254.170.2/32",
            "169.254.170.23/32",
            "100.100.100.200/32",
            "168.63.129.16/32",
            "192.0.0.192/32",
            "fd00:ec2::/32",
            "fd20:ce::254/128",
        ),
    ),
    ("loopback", ("127.0.0.0/8", "::1/128")),
    ("link-local", ("169.254.0.0/16", "fe80::/10")),
    ("unspecified", ("0.0.0.0/8", "::/128")),
    ("multicast", ("224.0.0.0/4", "ff00::/8")),
    ("reserved", ("240.0.0.0/4", "fec0::/10")),
)
_SPECIAL_NETWORKS: Final = tuple(
    (kind, ip_network(text)) for kind, texts in _SPECIAL for text in texts
)
_NAT64: Final = ip_network("64:ff9b::/96")
_COMPATIBLE: Final = ip_network("::/96")


def is_host(text: str) -> bool:
    """Whether a text can be the host of a server: a name or an address."""
    return _HOST.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class HostPattern:
    """One item of a host list: a host, a pattern of hosts, or a network.

    `*` matches any characters within one label of a name, a leading `*.` one or more whole labels,
    and `*` alone every host. A network matches addresses, not names that resolve to them.
    """

    host: str
    port: int | None = None  # None: every port
    network: IpNetwork | None = None

    def matches(self, host: str, port: int | None = None) -> bool:
        """Whether the host matches as it is written, without resolving it."""
        if self.port is not None and port != self.port:
            return False
        if self.network is not None:
            address = _read_address(host)
            return address is not None and _contains(self.network, address)
        return _compile(self.host).fullmatch(host.lower().rstrip(".")) is not None

    def __str__(self) -> str:
        if self.port is None:
            return self.host
        host = self.host.partition("/")[0]
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


def parse_host_patterns(text: str) -> tuple[HostPattern, ...]:
    """The hosts in a list, separated by commas or spaces: HOST, HOST:PORT, a pattern, or a network.

    Raises ValueError, which names the invalid part and the reason.
    """
    return tuple(_parse_pattern(part.lower()) for part in split_host_list(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialGrant:
    """The hosts to which credentials may go."""

    owner: str  # of the credentials, for messages: "Secret orders-redis"
    hosts: tuple[HostPattern, ...]
    also: CredentialGrant | None = None  # of another Secret, which must allow the host as well

    def objection(self, host: str, port: int) -> str | None:
        """Why the credentials may not go to a host and port; None: they may."""
        if any(pattern.matches(host, port) for pattern in self.hosts):
            return None if self.also is None else self.also.objection(host, port)
        shown = f"[{host}]" if ":" in host else host
        return (
            f"Pelops does not send the credentials of {self.owner} to {shown}:{port}, because the "
            "Secret does not list this host. If the host is correct, add it to the annotation "
            f"{REDIS_HOSTS} of the Secret"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressRules:
    """Which addresses may be connected to.

    An address is allowed if it is in one of the networks, or if its host matches a pattern. Special
    addresses are loopback, link-local, metadata service, unspecified, multicast and reserved ones.
    They are allowed only by a network within their own range, such as 127.0.0.0/8, not by 0.0.0.0/0
    or a pattern.
    """

    networks: tuple[IpNetwork, ...] = ()
    hosts: tuple[HostPattern, ...] = ()
    routable: bool = True  # all addresses that are not special

    def objection(self, host: str, address: str) -> str | None:
        """Why an address that `host` resolved to is refused; None: it is allowed."""
        ip = _read_address(address)
        if ip is None:
            return "an address of an unknown kind"
        special = _find_special(ip)
        if special is not None:
            kind, own_range = special
            if any(
                _contains(network, ip) and _is_within(network, own_range)
                for network in self.networks
            ):
                return None
            return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind} address"
        if self.routable or any(_contains(network, ip) for network in self.networks):
            return None
        if any(pattern.matches(host) for pattern in self.hosts):
            return None
        return "outside of the networks and hosts that this installation of Pelops allows"

    @property
    def networks_text(self) -> str:
        """The networks as `parse_address_rules` reads them."""
        return ",".join([*([ROUTABLE] if self.routable else []), *map(str, self.networks)])

    @property
    def hosts_text(self) -> str:
        """The host patterns as `parse_address_rules` reads them."""
        return ",".join(map(str, self.hosts))


def parse_address_rules(networks: str, hosts: str) -> AddressRules:
    """The rules of two lists, separated by commas or spaces; the default if both are empty.

    Raises ValueError, which names the invalid part and the reason.
    """
    parts = split_host_list(networks)
    patterns = parse_host_patterns(hosts)
    if any(pattern.port is not None or pattern.network is not None for pattern in patterns):
        raise ValueError(
            "a host pattern must not have a port, and networks belong into the list of networks"
        )
    return AddressRules(
        networks=tuple(_parse_network(part) for part in parts if part != ROUTABLE),
        hosts=patterns,
        routable=ROUTABLE in parts or not (parts or patterns),
    )


def split_host_list(text: str) -> list[str]:
    return text.replace(",", " ").split()


def _parse_network(text: str) -> IpNetwork:
    try:
        return ip_network(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is not a network: write a network such as 10.0.0.0/8 or fd00::/8, or "
            f"{ROUTABLE}"
        ) from None


def _parse_pattern(text: str) -> HostPattern:
    if "/" in text or _read_address(text) is not None:
        network = _parse_network(text)
        return HostPattern(str(network), network=network)
    host, port = _split_port(text)
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if _read_address(bare) is not None:
        network = _parse_network(bare)
        return HostPattern(str(network), port, network)
    if not _PATTERN.fullmatch(host):
        raise ValueError(f"{text!r} is not a host: write HOST, HOST:PORT, *.DOMAIN or a network")
    return HostPattern(host.rstrip("."), port)


def _split_port(text: str) -> tuple[str, int | None]:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        return text, None
    if not (port.isascii() and port.isdigit() and 0 < int(port[:6]) <= 65_535):
        raise ValueError(f"{text!r} has an invalid port: write a number from 1 to 65535")
    return host, int(port)


@lru_cache(maxsize=1024)
def _compile(pattern: str) -> re.Pattern[str]:
    if pattern == "*":
        return re.compile(r".+", re.DOTALL)
    if pattern.startswith("*."):
        return re.compile(r"(?:[^.]+\.)+" + _within_parts(pattern[2:]))
    return re.compile(_within_parts(pattern))


def _within_parts(pattern: str) -> str:
    return "[^.]*".join(map(re.escape, pattern.split("*")))


def _read_address(text: str) -> IpAddress | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address):
        # Without its zone; an IPv4-mapped address counts as the IPv4 address.
        return address.ipv4_mapped or IPv6Address(int(address))
    return address


def _find_special(address: IpAddress) -> tuple[str, IpNetwork] | None:
    """The kind of a special address, and the range of that kind; None for other addresses."""
    for kind, network in _SPECIAL_NETWORKS:
        if _contains(network, address):
            return kind, network
    for inner in _embedded(address):
        special = _find_special(inner)
        if special is not None:
            return special[0], ip_network(address)
    return None


def _embedded(address: IpAddress) -> Iterator[IPv4Address]:
    """IPv4 addresses to which 6to4 or NAT64 may route an IPv6 address."""
    if isinstance(address, IPv4Address):
        return
    if address.sixtofour is not None:
        yield address.sixtofour
    if _contains(_NAT64, address) or _contains(_COMPATIBLE, address):
        yield IPv4Address(int(address) & 0xFFFFFFFF)


def _contains(network: IpNetwork, address: IpAddress) -> bool:
    return network.version == address.version and address in network


def _is_within(network: IpNetwork, outer: IpNetwork) -> bool:
    if isinstance(network, IPv4Network) and isinstance(outer, IPv4Network):
        return network.subnet_of(outer)
    if isinstance(network, IPv6Network) and isinstance(outer, IPv6Network):
        return network.subnet_of(outer)
    return False
