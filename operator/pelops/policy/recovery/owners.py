"""Which pod a consumer's name refers to.

    web-7d9f-abcde:3f2b8c1e-...    Only the pod with this uid. The operator injects such names.
    web-7d9f-abcde                 A pod's name, or its hostname (its first 63 characters).
    web-7d9f-abcde-12345           With any suffix or prefix, such as a process ID.
    app@web-7d9f-abcde             Delimited by any character except letters and digits.
    worker-1, laptop               Unknown: no pod.

If one pod name contains another, the longer one wins: `web-1-canary-x` does not match `web-1`.
Pods outside the workload count for this rule too, although they are not used as evidence.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from pelops.domain.recovery import GonePod, OwnerMatch
from pelops.domain.workload import PodObservation

_UID: Final = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_ANY_UID: Final = re.compile(rf"(?<![A-Za-z0-9]){_UID}(?![A-Za-z0-9])")
_INJECTED: Final = re.compile(rf"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?:({_UID})")
_WORD: Final = re.compile(r"[A-Za-z0-9]+")
LONGEST_POD_NAME: Final = 253
LONGEST_CONSUMER: Final = 1_024  # characters; a longer name is not searched and matches no pod


class Owners:
    """The live and former pods of one workload, indexed to be matched with consumer names."""

    def __init__(
        self,
        pods: Iterable[PodObservation],
        gone: Iterable[GonePod] = (),
        *,
        is_stranger: Callable[[str], bool] = lambda name: False,
    ) -> None:
        """`is_stranger` returns whether a name is that of a pod outside the workload."""
        self._is_stranger = is_stranger
        self._pods: dict[str, list[PodObservation]] = defaultdict(list)  # by name, hostname, uid
        self._gone: dict[str, list[GonePod]] = defaultdict(list)
        for pod in pods:
            for name in _names(pod):
                self._pods[name].append(pod)
        for one in gone:
            for name in _names(one.pod):
                self._gone[name].append(one)

    def match(self, consumer: str) -> OwnerMatch:
        """Return the pods of a consumer. Total; the cost is independent of the number of pods."""
        if len(consumer) > LONGEST_CONSUMER:
            return OwnerMatch()
        uids = _ANY_UID.findall(consumer)
        if any(self._is_known(uid) for uid in uids):
            return self._all(uids, is_by_uid=True)
        injected = _INJECTED.fullmatch(consumer)
        if injected is not None:
            # In any other format an unknown UUID may be an identifier that the user chose.
            return OwnerMatch(vanished_uid=injected[1], is_by_uid=True)
        return self._longest(consumer)

    def _longest(self, consumer: str) -> OwnerMatch:
        known_tokens: list[str] = []
        for token in _tokens(consumer):
            if known_tokens and len(token) < len(known_tokens[0]):
                break
            if self._is_known(token):
                known_tokens.append(token)
            elif self._is_stranger(token):
                return OwnerMatch(is_strangers=True)
        return self._all(known_tokens)

    def _is_known(self, name: str) -> bool:
        return name in self._pods or name in self._gone

    def _all(self, names: Iterable[str], *, is_by_uid: bool = False) -> OwnerMatch:
        names = dict.fromkeys(names)
        pods = {pod.uid: pod for name in names for pod in self._pods.get(name, ())}
        gone = {one.pod.uid: one for name in names for one in self._gone.get(name, ())}
        return OwnerMatch(pods=tuple(pods.values()), gone=tuple(gone.values()), is_by_uid=is_by_uid)


def _names(pod: PodObservation) -> set[str]:
    return {pod.name, pod.hostname, pod.uid} - {""}


def _tokens(consumer: str) -> Iterator[str]:
    """Yield each part between two delimiters that could be a pod's name, the longest first."""
    words = [word.span() for word in _WORD.finditer(consumer)]
    spans = (
        (start, end)
        for index, (start, _) in enumerate(words)
        for _, end in words[index:]
        if end - start <= LONGEST_POD_NAME
    )
    for start, end in sorted(spans, key=lambda span: span[0] - span[1]):
        yield consumer[start:end]
