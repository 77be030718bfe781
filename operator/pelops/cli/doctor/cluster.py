"""What `pelops doctor` asks of the API server, through kubectl or as the operator.

Both ways raise the same errors: NotFound, Forbidden, and KubernetesError for all else.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from pelops.cli.kubectl import Kubectl, KubectlFailed
from pelops.errors import Forbidden, KubernetesError, NotFound, PelopsError

if TYPE_CHECKING:
    from pelops.kube.client import KubeApi
    from pelops.policy.doctor.facts import AccessRight

Object: TypeAlias = dict[str, Any]

_MISSING: Final = frozenset({"NotFound", "NoSuchKind"})
_REFUSED: Final = frozenset({"Forbidden", "Unauthorized"})
_PARALLEL: Final = 4  # processes of kubectl


class ClusterReader(Protocol):
    """The API server, for reading alone."""

    async def read(self, path: str) -> Object:
        """Return the JSON at a path. Raises NotFound, Forbidden or another KubernetesError."""

    async def review(
        self, rights: Sequence[AccessRight], namespace: str, subject: str | None
    ) -> list[AccessRight]:
        """Return the rights that a user does not have; `subject` None is the caller itself.

        An empty namespace stands for all namespaces.
        """


class KubectlCluster:
    """The API server with the credentials of a user, through kubectl."""

    def __init__(self, kubectl: Kubectl) -> None:
        self._kubectl = kubectl
        self._turns = asyncio.Semaphore(_PARALLEL)

    async def read(self, path: str) -> Object:
        """See Cluster."""
        text = await self._run("get", "--raw", path)
        try:
            answer: Object = json.loads(text)
        except ValueError as error:
            raise KubernetesError(f"the answer to {path} is not JSON") from error
        return answer

    async def review(
        self, rights: Sequence[AccessRight], namespace: str, subject: str | None
    ) -> list[AccessRight]:
        """See Cluster. All rights are reviewed by one call."""
        reviews = [build_review(right, namespace, subject) for right in rights]
        # One document: kubectl before 1.33 does not read several JSON documents from one stream.
        together = {"apiVersion": "v1", "kind": "List", "items": reviews}
        text = await self._run("create", "--filename=-", "-o", "json", stdin=json.dumps(together))
        return find_refused(rights, read_documents(text))

    async def _run(self, *words: str, stdin: str | None = None) -> str:
        async with self._turns:
            try:
                return await asyncio.to_thread(self._kubectl.run, *words, stdin=stdin)
            except KubectlFailed as error:
                raise _translate(error) from error


class ApiCluster:
    """The API server with the rights of the operator."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api

    async def read(self, path: str) -> Object:
        """See Cluster."""
        return await self._api.read(path)

    async def review(
        self, rights: Sequence[AccessRight], namespace: str, subject: str | None
    ) -> list[AccessRight]:
        """See Cluster."""
        from pelops.kube.client import SELF_SUBJECT_ACCESS_REVIEW, SUBJECT_ACCESS_REVIEW

        kind = SELF_SUBJECT_ACCESS_REVIEW if subject is None else SUBJECT_ACCESS_REVIEW
        answers = await asyncio.gather(
            *(
                self._api.create(kind, "", build_review(right, namespace, subject))
                for right in rights
            )
        )
        return find_refused(rights, answers)


def build_review(right: AccessRight, namespace: str, subject: str | None) -> Object:
    """Return the review of one right, for the caller itself if `subject` is None."""
    resource, _, subresource = right.resource.partition("/")
    attributes = {
        "group": right.group,
        "resource": resource,
        "subresource": subresource,
        "verb": right.verb,
        "namespace": "" if resource in _CLUSTER_SCOPED else namespace,
    }
    spec: Object = {"resourceAttributes": attributes}
    if subject is not None:
        account = subject.split(":")
        spec["user"] = subject
        spec["groups"] = ["system:authenticated"]
        if subject.startswith("system:serviceaccount:") and len(account) == 4:
            spec["groups"] += ["system:serviceaccounts", f"system:serviceaccounts:{account[2]}"]
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview" if subject is None else "SubjectAccessReview",
        "spec": spec,
    }


_CLUSTER_SCOPED: Final = frozenset({"nodes"})


def find_refused(rights: Sequence[AccessRight], answers: Sequence[Object]) -> list[AccessRight]:
    """Return the rights whose review does not allow them. Raises KubernetesError."""
    if len(answers) != len(rights):
        raise KubernetesError(
            f"the API server answered {len(answers)} of {len(rights)} access reviews"
        )
    return [
        right
        for right, answer in zip(rights, answers, strict=True)
        if (answer.get("status") or {}).get("allowed") is not True
    ]


def read_documents(text: str) -> list[Object]:
    """Return the JSON documents of a text, one after the other. Raises KubernetesError."""
    decoder, at = json.JSONDecoder(), 0
    objects: list[Object] = []
    try:
        while at < len(text):
            if text[at].isspace():
                at += 1
                continue
            document, at = decoder.raw_decode(text, at)
            objects += document["items"] if document.get("kind") == "List" else [document]
    except (ValueError, AttributeError, KeyError) as error:
        raise KubernetesError("the answer of kubectl is not JSON") from error
    return objects


def _translate(error: KubectlFailed) -> PelopsError:
    if error.reason in _MISSING:
        return NotFound(str(error))
    if error.reason in _REFUSED:
        return Forbidden(str(error))
    return KubernetesError(str(error))
