"""Which pod a consumer's name speaks of.

    web-7d9f-abcde:3f2b8c1e-...    the pod with this uid alone; this is what workers are injected
    web-7d9f-abcde                 a pod's name, or its hostname (its first 63 characters)
    web-7d9f-abcde-12345           with whatever else: a process ID, a prefix
    app@web-7d9f-abcde             delimited by anything that is no letter and no digit
    worker-1, laptop               no pod's: unknown

A name that is longer than another one that it contains wins: `web-1-canary-x` is not `web-1`. Other
pods of the namespace count for this as well, though they are nobody's evidence.
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
LONGEST_CONSUMER: Final = 1_024  # a longer name is searched no further: it is nobody's


class Owners:
    """The pods of one workload, live and gone, ready to be found in consumers' names."""

    def __init__(
        self,
        pods: Iterable[PodObservation],
        gone: Iterable[GonePod] = (),
        *,
        is_stranger: Callable[[str], bool] = lambda name: False,
    ) -> None:
        """`is_stranger` tells whether a name is that of a pod that is not of the workload."""
        self._is_stranger = is_stranger
        self._pods: dict[str, list[PodObservation]] = defaultdict(list)  # by what names them
        self._gone: dict[str, list[GonePod]] = defaultdict(list)
        for pod in pods:
            for name in _names(pod):
                self._pods[name].append(pod)
        for one in gone:
            for name in _names(one.pod):
                self._gone[name].append(one)

    def match(self, consumer: str) -> OwnerMatch:
        """Whose this consumer is. Total; costs do not depend on the number of pods."""
        if len(consumer) > LONGEST_CONSUMER:
            return OwnerMatch()
        uids = _ANY_UID.findall(consumer)
        if any(self._is_known(uid) for uid in uids):
            return self._all(uids, is_by_uid=True)
        injected = _INJECTED.fullmatch(consumer)
        if injected is not None:
            # Any other name that nobody knows may hold an identifier of the user's own making.
            return OwnerMatch(vanished_uid=injected[1], is_by_uid=True)
        return self._longest(consumer)

    def _longest(self, consumer: str) -> OwnerMatch:
        found: list[str] = []
        for token in _tokens(consumer):
            if found and len(token) < len(found[0]):
                break
            if self._is_known(token):
                found.append(token)
            elif self._is_stranger(token):
                return OwnerMatch(is_strangers=True)
        return self._all(found)

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
    """Everything between two delimiters that could be a pod's name, the longest first."""
    words = [word.span() for word in _WORD.finditer(consumer)]
    spans = (
        (start, end)
        for index, (start, _) in enumerate(words)
        for _, end in words[index:]
        if end - start <= LONGEST_POD_NAME
    )
    for start, end in sorted(spans, key=lambda span: span[0] - span[1]):
        yield consumer[start:end]
