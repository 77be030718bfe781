"""Loopback addresses for pods: 127.X.0.1 to 127.X.255.254; no other node of this machine has X."""

import socket
import zlib

_FIRST_OCTET, _OCTETS = 16, 239
_PER_OCTET = 256 * 254


class PodAddresses:
    """Gives every pod of one node an address that is unique on this machine."""

    def __init__(self, node_name: str) -> None:
        self._claim, self._octet = _claim_octet(node_name)
        self._used: dict[str, str] = {}  # address -> uid
        self._next = 0

    def take(self, uid: str, wished: str = "") -> str:
        """An address for the pod; `wished` (its last one) when it is this node's and free."""
        address = wished if self._is_ours(wished) else self._next_free()
        self._used[address] = uid
        return address

    def release(self, address: str, uid: str) -> None:
        """Free the address if it is the pod's. Repeats safely."""
        if self._used.get(address) == uid:
            del self._used[address]

    def _is_ours(self, address: str) -> bool:
        return address.startswith(f"127.{self._octet}.") and address not in self._used

    def _next_free(self) -> str:
        for _ in range(_PER_OCTET):
            high, low = divmod(self._next, 254)
            self._next = (self._next + 1) % _PER_OCTET
            address = f"127.{self._octet}.{high}.{low + 1}"
            if address not in self._used:
                return address
        raise RuntimeError("no free pod address")


def _claim_octet(node_name: str) -> tuple[socket.socket, int]:
    """Hold an octet until this process ends, beginning at the one that the name hashes to.

    An abstract socket belongs to the network namespace, as the loopback addresses do, and vanishes
    with its owner.
    """
    start = zlib.crc32(node_name.encode())
    for step in range(_OCTETS):
        octet = _FIRST_OCTET + (start + step) % _OCTETS
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            claim.bind(f"\0local-cluster-pods-127.{octet}")
        except OSError:
            claim.close()
            continue
        return claim, octet
    raise RuntimeError("every range of pod addresses on this machine is taken")
