"""The cache of the objects that a replica watches.

The watch fills the cache, and a periodic LIST corrects it. Each managed kind (see `kind.py`)
declares with `Concern`s which objects it follows, which parts of them the cache keeps, and which of
its resources become due when an object changes. One object may concern several kinds.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from pelops.clock import with_jitter
from pelops.errors import KubernetesError
from pelops.kube.client import Kind, KubeApi, Manifest
from pelops.kube.trimmed import trim
from pelops.metrics import RESYNC_AGE, WATCH_LISTS

log = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")

Name: TypeAlias = tuple[str, str]  # namespace (empty for nodes) and name
# The resources that a change makes due, by their kind.
Concerned: TypeAlias = dict[Kind, set[Name]]
# Called with the kind of the changed objects, and the resources that are due.
DueListener: TypeAlias = Callable[[Kind, set[Name]], None]

BURST: Final = 20  # objects of a LIST that are stored before other tasks run, or
BURST_S: Final = 0.01  # seconds, since one object of 1 MiB takes longer
REMEMBERED: Final = 10_000  # uids of removed objects; late answers about them come within seconds


class Recent(OrderedDict[K, V]):
    """A dict of bounded size: the oldest item is dropped first."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        while len(self) > self._most:
            self.popitem(last=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectChange:
    """An object that was added, changed or removed."""

    kind: Kind
    name: Name
    before: Manifest | None = None  # the part that was kept; None: none
    after: Manifest | None = None  # None: it was removed
    last: Manifest | None = None  # the last state of a removed object, if an event contains it


def keep_nothing(_: Manifest) -> None:
    """Keep only versions: the owner of the concern keeps the parts that it needs."""


def ignore_late_end(_: Name, __: Manifest) -> None:
    """Do nothing with the last state of an object that was not in the cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Concern:
    """A kind of objects that a managed kind follows."""

    kind: Kind
    find: Callable[[ObjectChange], set[Name]]  # the resources that a change makes due
    # The part of an object that the cache keeps: `trim` keeps all that is used, with compressed
    # templates. If several kinds follow the object, and one of them uses `trim`, so does the cache.
    keep: Callable[[Manifest], Manifest | None] = trim
    is_optional: bool = False  # True: the others are followed if it may not be listed (403)
    # Called with the last state of an object that was already removed, or never in the cache.
    end_late: Callable[[Name, Manifest], None] = ignore_late_end


def concern_itself(kind: Kind) -> Concern:
    """The concern that makes a resource due when it changes itself."""
    return Concern(kind=kind, find=lambda change: {change.name})


class Cache:
    """Objects by kind and name. Older states, and states of removed objects, are ignored."""

    def __init__(self) -> None:
        self._versions: dict[Kind, dict[Name, tuple[str, int]]] = {}  # uid and resourceVersion
        self._kept: dict[Kind, dict[Name, Manifest]] = {}
        self._removed: Recent[str, None] = Recent(REMEMBERED)  # uids
        self._concerns: dict[Kind, list[tuple[Kind, Concern]]] = defaultdict(list)
        self._listeners: dict[Kind, list[DueListener]] = defaultdict(list)

    def follow(self, owner: Kind, *concerns: Concern) -> None:
        """Declare what concerns the resources of a kind. To be called before the first `put`."""
        for concern in concerns:
            self._concerns[concern.kind].append((owner, concern))
            self._versions.setdefault(concern.kind, {})
            self._kept.setdefault(concern.kind, {})

    def concerns_of(self, owner: Kind) -> tuple[Concern, ...]:
        """The concerns that were declared for a kind, in that order."""
        declared = (one for concerns in self._concerns.values() for one in concerns)
        return tuple(concern for kind, concern in declared if kind == owner)

    def listen(self, owner: Kind, listener: DueListener) -> None:
        """Call the listener with the resources of a kind that become due."""
        self._listeners[owner].append(listener)

    def objects(self, kind: Kind) -> Mapping[Name, Manifest]:
        """The kept parts of the objects of a kind, by name: a view that follows changes."""
        return self._kept.setdefault(kind, {})

    def is_trimmed(self, kind: Kind) -> bool:
        """Whether `trim` decides what is kept of the objects of a kind."""
        return any(concern.keep is trim for _, concern in self._concerns[kind])

    def put(self, kind: Kind, manifest: Manifest) -> Concerned:
        """Store an object unless a newer state is known. Returns the resources that become due.

        A removed object is not stored again: a late LIST or answer may still contain it.
        """
        if not self._is_new(kind, manifest):
            return {}
        name, kept = name_of(manifest), self._kept[kind]
        before = kept.get(name)
        part = self._keep(kind, manifest)
        if part is not None:
            kept[name] = part
        elif before is not None:
            del kept[name]
        after = manifest if part is None else part
        return self._find(ObjectChange(kind=kind, name=name, before=before, after=after))

    def remove(
        self, kind: Kind, name: Name, uid: str | None = None, *, last: Manifest | None = None
    ) -> Concerned:
        """Remove the object if it has this uid. Returns the resources that become due.

        `last` is its last state, from the event of its deletion.
        """
        if not self._record_removal(kind, name, uid):
            if last is not None:
                for _, concern in self._concerns[kind]:
                    concern.end_late(name, last)
            return {}
        before = self._kept[kind].pop(name, None)
        return self._find(ObjectChange(kind=kind, name=name, before=before, last=last))

    def announce(self, kind: Kind, concerned: Concerned) -> None:
        """Call the listeners with the resources that a change of objects of this kind makes due."""
        for owner, names in concerned.items():
            for listener in self._listeners[owner] if names else ():
                listener(kind, names)

    def handle_event(self, kind: Kind, manifest: Manifest, is_gone: bool) -> None:
        """Store an event of the watch, and announce the resources that become due."""
        if is_gone:
            uid = manifest["metadata"]["uid"]
            concerned = self.remove(kind, name_of(manifest), uid, last=manifest)
        else:
            concerned = self.put(kind, manifest)
        self.announce(kind, concerned)

    def put_answer(self, kind: Kind, manifest: Manifest, *, writer: Kind) -> set[Name]:
        """Store the object that a write returned, before the watch receives it.

        Resources of other kinds become due. Those of the writer's own kind are returned instead:
        the pass that wrote the object continues with it.
        """
        return self._announce_others(kind, self.put(kind, manifest), writer)

    def remove_deleted(
        self,
        kind: Kind,
        name: Name,
        uid: str | None = None,
        *,
        last: Manifest | None = None,
        writer: Kind,
    ) -> set[Name]:
        """Remove the object that a write deleted. Returns and announces as `put_answer`."""
        return self._announce_others(kind, self.remove(kind, name, uid, last=last), writer)

    def knows(self, kind: Kind, manifest: Manifest) -> bool:
        """Whether exactly this state of the object is known already."""
        metadata = manifest["metadata"]
        state = (metadata["uid"], int(metadata.get("resourceVersion") or 0))
        return self._versions[kind].get(name_of(manifest)) == state

    def version(self, kind: Kind, name: Name) -> int:
        """The version in which an object is known; 0 when it is not."""
        return self._versions[kind].get(name, ("", 0))[1]

    def names(self, kind: Kind) -> dict[Name, str]:
        """All names of a kind, with their uids."""
        return {name: uid for name, (uid, _) in self._versions[kind].items()}

    def _announce_others(self, kind: Kind, concerned: Concerned, writer: Kind) -> set[Name]:
        own = concerned.pop(writer, set())
        self.announce(kind, concerned)
        return own

    def _keep(self, kind: Kind, manifest: Manifest) -> Manifest | None:
        """The part of the object that its followers need, by `trim` if one of them uses that."""
        if self.is_trimmed(kind):
            return trim(manifest)
        parts = (concern.keep(manifest) for _, concern in self._concerns[kind])
        return next((part for part in parts if part is not None), None)

    def _find(self, change: ObjectChange) -> Concerned:
        concerned: Concerned = defaultdict(set)
        for owner, concern in self._concerns[change.kind]:
            try:
                concerned[owner] |= concern.find(change)
            except Exception:
                # A bug in one managed kind must not keep the object from the other kinds.
                where = f"the {change.kind.kind} {'/'.join(change.name)}"
                log.exception("Could not find the %s that depend on %s", owner.plural, where)
        return concerned

    def _is_new(self, kind: Kind, manifest: Manifest) -> bool:
        """Whether this state is new; if so, its version is stored."""
        metadata = manifest["metadata"]
        if metadata["uid"] in self._removed:
            return False
        name, version = name_of(manifest), int(metadata.get("resourceVersion") or 0)
        known = self._versions[kind].get(name)
        if known is not None and known[0] == metadata["uid"] and known[1] > version:
            return False
        self._versions[kind][name] = (metadata["uid"], version)
        return True

    def _record_removal(self, kind: Kind, name: Name, uid: str | None) -> bool:
        """Record that an object was removed. False if another object of this name is stored.

        Without a uid, the stored object is meant.
        """
        known = self._versions[kind].get(name)
        gone = uid if uid is not None or known is None else known[0]
        if gone is not None:
            self._removed[gone] = None
        if known is None or known[0] != gone:
            return False
        del self._versions[kind][name]
        return True


class Resync:
    """Compares the cache with a full LIST, and announces differences, deletions included."""

    def __init__(self, api: KubeApi, cache: Cache, namespaces: Collection[str]) -> None:
        """`namespaces` are the ones that are listed; empty: all."""
        self._api = api
        self._cache = cache
        self._namespaces = tuple(namespaces) or (None,)

    @property
    def namespaces(self) -> tuple[str, ...]:
        """The namespaces that are listed; empty: all."""
        return tuple(filter(None, self._namespaces))

    def is_trimmed(self, kind: Kind) -> bool:
        """Whether `trim` decides what is kept of the objects of a kind."""
        return self._cache.is_trimmed(kind)

    def feeds(self, kind: Kind) -> list[str | None]:
        """The namespaces in which a kind is listed and watched; None stands for all."""
        return list(self._namespaces) if kind.namespaced else [None]

    async def run(self, kinds: Callable[[], Collection[Kind]], *, every_s: float) -> None:
        """Resync each kind periodically, until cancelled. An outage leaves the cache as it is."""
        while True:
            await asyncio.sleep(with_jitter(every_s))
            for kind in kinds():
                try:
                    await self.resync(kind)
                except KubernetesError as error:
                    log.warning("Could not list %s: %s", kind.plural, error)

    async def resync(self, kind: Kind) -> None:
        """LIST one kind: store new objects, remove deleted ones. Raises KubernetesError."""
        for namespace in self.feeds(kind):
            await self.list_feed(kind, namespace)
        WATCH_LISTS.labels(kind.plural, "resync").inc()

    async def probe(self, kind: Kind) -> None:
        """Ask for one object of a kind. Raises KubernetesError when it may not be listed."""
        for namespace in self.feeds(kind):
            async for _ in self._api.list_pages(kind, namespace, page=1):
                break

    async def list_feed(
        self,
        kind: Kind,
        namespace: str | None,
        *,
        page_s: float | None = None,
        on_page: Callable[[], None] = lambda: None,
    ) -> None:
        """LIST one kind in one namespace. Each page comes within `page_s`.

        Raises KubernetesError.
        """
        before = {
            name: uid
            for name, uid in self._cache.names(kind).items()
            if namespace is None or name[0] == namespace
        }
        alive: set[str] = set()
        concerned: Concerned = defaultdict(set)
        try:
            # Page by page: thousands of whole objects at once would stay in the process's memory.
            async for page in self._api.list_pages(kind, namespace, timeout_s=page_s):
                on_page()
                began_at = time.monotonic()
                for count, item in enumerate(page.items(), start=1):
                    alive.add(item["metadata"]["uid"])
                    if not self._cache.knows(kind, item):
                        _merge(concerned, self._put(kind, item))
                    if count % BURST == 0 or time.monotonic() - began_at > BURST_S:
                        await asyncio.sleep(0)  # lets other tasks run
                        began_at = time.monotonic()
            for name, uid in find_deleted(before, alive):
                log.info("%s %s was deleted without a watch event", kind.kind, "/".join(name))
                _merge(concerned, self._cache.remove(kind, name, uid))
        finally:
            # If a page failed: the changes so far are in the cache, so no later LIST finds them.
            self._cache.announce(kind, concerned)
        RESYNC_AGE.labels(kind.plural).set(time.time())

    def _put(self, kind: Kind, item: Manifest) -> Concerned:
        try:
            return self._cache.put(kind, item)
        except Exception:
            # One object that cannot be read must not hide all others of its kind.
            log.exception("Could not read %s %s", kind.kind, "/".join(name_of(item)))
            return {}


def _merge(concerned: Concerned, more: Concerned) -> None:
    for owner, names in more.items():
        concerned[owner] |= names


def name_of(manifest: Manifest) -> Name:
    """The namespace and the name of an object."""
    metadata = manifest["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def find_deleted(before: Mapping[Name, str], alive: Collection[str]) -> list[tuple[Name, str]]:
    """The objects known before a LIST whose uids it does not have: deleted without an event."""
    return [(name, uid) for name, uid in before.items() if uid not in alive]
