"""Answers to questions about a resource's group: its Redis, and the evidence of this replica.

A question passes a gate of its own, so that no number of them delays a scan or a pass, and none may
take longer than `LIMITS.deadline_s`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Final

from pelops.api.group.stream_consumer_group import StreamConsumerGroup
from pelops.controller.group.group_observer import GroupObserver
from pelops.controller.recovery.pod_evidence import LivenessEvidence, LivenessQuestion
from pelops.controller.runtime.gate import Gate, Limits
from pelops.controller.runtime.kind import place_of
from pelops.controller.workload.targets import Targets
from pelops.controller.workload.workload_cache import WorkloadCache
from pelops.domain.records.inspection import Document
from pelops.domain.recovery import Cutoff
from pelops.errors import InvalidSpec, NotFound
from pelops.redis_streams.inspection.group_view import GroupInspection, OwnerQuestion
from pelops.redis_streams.inspection.questions import Question, answer_question

LIMITS: Final = Limits(deadline_s=60.0, most=8, per_namespace=2, per_endpoint=2)


class Inspector:
    """Answers for every resource that this replica watches."""

    def __init__(
        self,
        cache: WorkloadCache,
        observer: GroupObserver,
        evidence: LivenessEvidence,
        targets: Targets,
        *,
        skew: timedelta,
    ) -> None:
        """`skew` is the greatest between a node's clock and a Redis', unless it is measured."""
        self._cache = cache
        self._observer = observer
        self._evidence = evidence
        self._targets = targets
        self._skew = skew
        self._gate = Gate("inspection", LIMITS)

    async def answer(self, question: Question) -> Document:
        """The answer to one question. Writes nothing.

        Raises NotFound when there is no such resource, DeadlineExceeded, NoSuchEntry, InvalidSpec,
        and as every read of Redis does.
        """
        name = (question.namespace, question.name)
        manifest = self._cache.resources.get(name)
        if manifest is None:
            raise NotFound(
                f"streamconsumergroup {question.namespace}/{question.name} does not exist, or the "
                "operator does not watch its namespace"
            )
        if manifest["metadata"].get("deletionTimestamp"):
            raise NotFound(f"streamconsumergroup {'/'.join(name)} is being deleted")
        resource = StreamConsumerGroup.parse(manifest)
        return await self._gate.run(
            place_of(name, manifest), partial(self._answer, resource, question), what="/".join(name)
        )

    async def _answer(self, resource: StreamConsumerGroup, question: Question) -> Document:
        server, keys = await self._observer.connect(resource)

        async def find_cutoffs(asked: OwnerQuestion) -> Mapping[str, Cutoff]:
            return await self._find_cutoffs(resource, asked)

        inspection = GroupInspection(
            server=server.dry,
            keys=keys,
            recovery=resource.spec.recovery,
            find_cutoffs=find_cutoffs,
            obstacle=_find_obstacle(resource),
            with_payload=question.payload,
        )
        return await answer_question(inspection, question)

    async def _find_cutoffs(
        self, resource: StreamConsumerGroup, asked: OwnerQuestion
    ) -> Mapping[str, Cutoff]:
        """Find the cutoffs of owners with the evidence that a scan uses."""
        workload, _ = await self._targets.observe(resource)
        liveness = await self._evidence.find_liveness(
            LivenessQuestion(
                workload=workload,
                consumers=asked.consumers,
                records=asked.records,
                server_time=asked.server_time,
                skew=self._skew,
                container=resource.spec.container_name,
                master_since=asked.master_since,
                server=asked.server,
            )
        )
        return {owner: one.cutoff for owner, one in liveness.items()}


def _find_obstacle(resource: StreamConsumerGroup) -> str:
    """Why the resource itself asks for no recovery now."""
    if resource.spec.suspend:
        return "spec.suspend is true"
    if resource.spec.recovery.dry_run:
        return "spec.recovery.dryRun is true"
    return ""


def check_question(question: Question) -> None:
    """Raise InvalidSpec for a question that names no resource."""
    if not question.namespace or not question.name:
        raise InvalidSpec("the question must name the namespace and the name of the resource")
