"""The dead letters that a redrive selects: by its spec, or by the plan of an audit."""

from __future__ import annotations

from pelops.api.redrive.stream_redrive import (
    PlanRef,
    SelectionSpec,
)
from pelops.domain.entry_id import parse_entry_id
from pelops.errors import (
    InvalidSpec,
    NotFound,
)
from pelops.kube.client import (
    CONFIG_MAP,
    Address,
    KubeApi,
)
from pelops.policy.redrive.selection import Selection, compile_pattern


def build_selection(spec: SelectionSpec | None) -> Selection:
    """The selection of dead letters, without the plan. Raises InvalidSpec."""
    if spec is None:
        return Selection()
    pattern = spec.error_matches
    return Selection(
        reasons=frozenset(spec.reasons or ()),
        clusters=frozenset(spec.clusters or ()),
        error_contains=spec.error_contains or "",
        error_matches=compile_pattern(pattern) if pattern else None,
        fields=tuple((one.name.encode(), one.value.encode()) for one in spec.fields or ()),
        after=spec.dead_lettered_after,
        before=spec.dead_lettered_before,
        ids=frozenset(parse_entry_id(one) for one in spec.ids) if spec.ids else None,
        max_returned=spec.max_returned,
    )


async def read_plan(api: KubeApi, namespace: str, plan: PlanRef) -> list[str]:
    """The lines of a redrive plan. Raises NotFound and InvalidSpec, which say what to do."""
    where = f"ConfigMap {namespace}/{plan.name} of spec.selection.planRef"
    try:
        manifest = await api.get(Address(kind=CONFIG_MAP, namespace=namespace, name=plan.name))
    except NotFound as error:
        raise InvalidSpec(f"{where} does not exist: create it from the plan of an audit") from error
    text = (manifest.get("data") or {}).get(plan.key)
    if not isinstance(text, str):
        raise InvalidSpec(f"{where} does not have the key {plan.key}: add it")
    return text.splitlines()
