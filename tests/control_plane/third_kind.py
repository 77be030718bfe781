"""A third kind: what one costs, from its model to its controller, without a line of the runtime.

A Greeting asks for a ConfigMap with its text, and for an entry in a book outside Kubernetes. The
book is a dict here; a real kind has an adapter to Redis in its place.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Annotated, Any

from pydantic import Field, ValidationError

from pelops.api import crd
from pelops.api.group.group_status_model import StatusCondition as ConditionModel
from pelops.api.schema import base as schema
from pelops.api.schema.base import (
    ApiModel,
    ObjectMeta,
    ObservedGeneration,
    Text,
    render_errors,
)
from pelops.controller.runtime.cache import Concern, Name, ObjectChange, concern_itself
from pelops.controller.runtime.kind import (
    Finalizer,
    ManagedKind,
    Memory,
    Pass,
    PassIntervals,
    PlannedAction,
    Services,
    StatusDecision,
    render_heading,
)
from pelops.domain.condition import Condition, Finding
from pelops.errors import InvalidSpec, KubernetesUnavailable, PelopsError, RedisUnavailable
from pelops.kube.client import Address, Kind, Manifest
from pelops.kube.event_recorder import EventContent

CONFIG_MAP = Kind(group="", version="v1", kind="ConfigMap", plural="configmaps")
LABEL = "pelops.dev/greeting"

# --- the api model


class GreetingSpec(ApiModel):
    """What is asked for."""

    text: Text = Field(description="Words of the greeting.")


class GreetingStatus(ApiModel):
    """What is reported."""

    observed_generation: ObservedGeneration | None = Field(
        default=None, description="Generation seen."
    )
    conditions: Annotated[tuple[ConditionModel, ...], Field(max_length=8)] | None = Field(
        default=None, description="Conditions."
    )
    entry: Text | None = Field(default=None, description="What the book says.")


class Greeting(ApiModel):
    """One greeting, as a user declared it."""

    metadata: ObjectMeta
    spec: GreetingSpec

    @classmethod
    def parse(cls, manifest: Mapping[str, Any]) -> Greeting:
        """Raises InvalidSpec."""
        try:
            return cls.model_validate(manifest)
        except ValidationError as error:
            raise InvalidSpec(render_errors(error)) from error


def build_kind(plural: str = "greetings") -> Kind:
    """A kind of greetings with this name."""
    name = plural.removesuffix("s").capitalize()
    return Kind(group=schema.GROUP, version=schema.VERSION, kind=name, plural=plural)


def build_definition(kind: Kind) -> Manifest:
    """Its CustomResourceDefinition, by the generator of all others."""
    return crd.build_definition(
        schema.KindDefinition(
            kind=kind.kind,
            plural=kind.plural,
            singular=kind.plural.removesuffix("s"),
            short_names=(),
            description="A greeting.",
            spec=GreetingSpec,
            status=GreetingStatus,
            rules=(),
            columns=(),
            selectable_fields=(),
            scale=None,
        )
    )


# --- the policy


@dataclass(frozen=True, slots=True, kw_only=True)
class GreetingFacts:
    """Everything that is known of a greeting."""

    greeting: Greeting
    has_finalizer: bool
    shown: str | None  # by its ConfigMap
    entry: str | None  # in the book
    problem: Finding | None = None


def plan_greeting(facts: GreetingFacts) -> str | None:
    """What is missing."""
    text = facts.greeting.spec.text
    if not facts.has_finalizer:
        return "adding the finalizer"
    if facts.entry != text:
        return "writing the book"
    return "applying the ConfigMap" if facts.shown != text else None


def decide_greeting(facts: GreetingFacts) -> Condition:
    """Ready, or why not."""
    if facts.problem is not None:
        reason, message = facts.problem.reason, facts.problem.message
        return Condition(type="Ready", status="False", reason=reason, message=message)
    if plan_greeting(facts) is not None:
        return Condition(type="Ready", status="False", reason="Creating", message="wait")
    return Condition(type="Ready", status="True", reason="Greeted", message="it stands there")


# --- the controller, and the adapter


@dataclass
class Book:
    """What is outside of Kubernetes: one for all replicas."""

    entries: dict[Name, str] = field(default_factory=dict)
    is_away: bool = False

    def write(self, name: Name, text: str | None) -> None:
        """Write an entry, or (None) remove it. Raises RedisUnavailable."""
        if self.is_away:
            raise RedisUnavailable("the book is away")
        if text is None:
            self.entries.pop(name, None)
        else:
            self.entries[name] = text


class GreetingKind(ManagedKind[Greeting, GreetingFacts, Memory]):
    """Greetings."""

    def __init__(
        self, services: Services, book: Book, *, api: Kind, is_required: bool = True
    ) -> None:
        super().__init__(services.clock, defaultdict(Memory))
        self.api = api
        self.is_required = is_required
        self.passes: Counter[Name] = Counter()
        self.faults: list[Exception] = []  # that the next passes meet
        self.served: list[bool] = []
        self._book = book
        self._services = services
        self._maps = services.cache.objects(CONFIG_MAP)
        self.finalizer: Finalizer = Finalizer(
            services.api, services.cache, api, f"pelops.dev/{api.plural}"
        )
        services.cache.follow(
            api, concern_itself(api), Concern(kind=CONFIG_MAP, find=_find_greeting)
        )

    def parse(self, manifest: Manifest) -> Greeting:
        return Greeting.parse(manifest)

    async def observe(self, current: Pass[Greeting, Memory]) -> GreetingFacts:
        self.passes[current.name] += 1
        if self.faults:
            raise self.faults.pop()
        shown = self._maps.get(current.name)
        return GreetingFacts(
            greeting=current.resource,
            has_finalizer=self.finalizer.is_on(current.resource.metadata),
            shown=shown["data"]["text"] if shown is not None else None,
            entry=self._book.entries.get(current.name),
        )

    def actions(
        self, observation: GreetingFacts, current: Pass[Greeting, Memory]
    ) -> Iterator[PlannedAction]:
        greeting, what = current.resource, plan_greeting(observation)
        writes: dict[str, Callable[[], Awaitable[EventContent | None]]] = {
            "adding the finalizer": partial(self._add_finalizer, greeting),
            "writing the book": partial(self._write_book, current.name, greeting.spec.text),
            "applying the ConfigMap": partial(self._apply_map, greeting),
        }
        if what is not None:
            yield PlannedAction(part="all", what=what, do=writes[what])

    def add_problem(
        self, observation: GreetingFacts, part: str | None, error: PelopsError
    ) -> GreetingFacts:
        return replace(observation, problem=Finding(reason="Failed", message=str(error)))

    def decide_status(
        self, observation: GreetingFacts, current: Pass[Greeting, Memory], now: datetime
    ) -> StatusDecision:
        ready = decide_greeting(observation)
        status = render_heading([ready], current.previous, now)
        if observation.entry is not None:
            status["entry"] = observation.entry
        return StatusDecision(status=status, conditions=[ready], problem=observation.problem)

    def intervals(self, known: int) -> PassIntervals:
        settings = self._services.settings
        return PassIntervals(observe_s=settings.observe_s, status_s=settings.status_s)

    async def clean_up(self, current: Pass[Greeting, Memory], now: datetime) -> EventContent:
        self._book.write(current.name, None)
        return EventContent(type="Normal", reason="Removed", action="Delete", note="It is gone")

    def serve(self, is_served: bool) -> None:
        self.served.append(is_served)

    async def _add_finalizer(self, greeting: Greeting) -> None:
        await self.finalizer.add(greeting.metadata)

    async def _write_book(self, name: Name, text: str) -> EventContent:
        self._book.write(name, text)
        note = f"Wrote {text}"
        return EventContent(type="Normal", reason="Written", action="Write", note=note)

    async def _apply_map(self, greeting: Greeting) -> None:
        metadata = greeting.metadata
        body: Manifest = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": metadata.name,
                "namespace": metadata.namespace,
                "labels": {LABEL: metadata.name},
            },
            "data": {"text": greeting.spec.text},
        }
        address = Address(kind=CONFIG_MAP, namespace=metadata.namespace, name=metadata.name)
        answer = await self._services.api.apply(address, body)
        self._services.cache.put_answer(CONFIG_MAP, answer, writer=self.api)


def _find_greeting(change: ObjectChange) -> set[Name]:
    labels: dict[str, str] = {}
    for manifest in (change.before, change.after):
        labels |= (manifest or {}).get("metadata", {}).get("labels") or {}
    return {(change.name[0], labels[LABEL])} if LABEL in labels else set()


OUTAGE = KubernetesUnavailable("nobody answers")
MISTAKE = ValueError("a mistake of ours")
