"""`pelops status`: one group in sections, or a table of groups."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final

from pelops.cli.command_parser import add_examples
from pelops.cli.console import Console
from pelops.cli.display.durations import parse_duration, render_age_of
from pelops.cli.display.gauges import GroupGauges, fetch_gauges
from pelops.cli.display.group_facts import (
    PAUSE_REASON,
    PAUSED_AT,
    PAUSED_BY,
    ConditionFacts,
    DisplayedGroup,
    read_group,
    render_facts,
    suggest_next,
)
from pelops.cli.display.rates import Row, build_row, render_rate
from pelops.cli.display.tables import MARKS, Cell, Column, Style, Styled, Text
from pelops.cli.errors import CommandFailed, ExitCode
from pelops.cli.flags import add_output_flag
from pelops.cli.kubectl import GROUPS, Kubectl, Object, run_together

API_VERSION: Final = "cli.pelops.dev/v1alpha1"
_POLL_S: Final = 1.0
_SHOWN_PODS: Final = 10
_SHOWN_EVENTS: Final = 5
_LABEL: Final = 10

COLUMNS: Final = (
    Column(name="NAME"),
    Column(name="READY"),
    Column(name="REASON"),
    Column(name="LAG", right=True),
    Column(name="PENDING", right=True),
    Column(name="STUCK", right=True),
    Column(name="OLDEST", right=True),
    Column(name="DLQ", right=True),
    Column(name="REPLICAS", right=True),
    Column(name="AGE", right=True),
    Column(name="STREAM", wide=True),
    Column(name="GROUP", wide=True),
    Column(name="MESSAGE", wide=True),
)
_POD_COLUMNS: Final = (
    Column(name="NAME"),
    Column(name="STATE"),
    Column(name="READY"),
    Column(name="RESTARTS", right=True),
    Column(name="AGE", right=True),
    Column(name="NODE", wide=True),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the command."""
    parser.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="StreamConsumerGroup; default: all of the namespace",
    )
    parser.add_argument(
        "--wait", action="store_true", help="wait until every group that is shown is Ready"
    )
    parser.add_argument(
        "--timeout",
        type=parse_duration,
        default="5m",
        metavar="DURATION",
        help="how long --wait waits, such as 90s or 5m; then the exit code is 124",
    )
    add_output_flag(parser)
    add_examples(
        parser,
        "# the groups of a namespace, or of all namespaces",
        "pelops status -n shop",
        "pelops status -A",
        "",
        "# one group in detail",
        "pelops status orders -n shop",
        "",
        "# in a pipeline: wait until the group is Ready",
        "pelops status orders -n shop --wait --timeout 2m",
    )


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Show the groups. The exit code is 1 if one of them is not Ready."""
    kubectl = Kubectl.of(arguments, console)
    everywhere = bool(getattr(arguments, "all_namespaces", False))
    if arguments.name and everywhere:
        raise CommandFailed(
            "a group has one namespace: use -n with NAME, or -A without it", code=ExitCode.USAGE
        )
    source = _StatusSource(kubectl, arguments.name, everywhere=everywhere)
    in_time = _wait(source, console, arguments.timeout) if arguments.wait else True
    groups = source.read()
    _show(groups, source, console, now=datetime.now(UTC))
    if not in_time:
        return ExitCode.TIMEOUT
    return ExitCode.SUCCESS if all(group.is_ready for group in groups) else ExitCode.PROBLEM


class _StatusSource:
    """Where the groups of one command line come from."""

    def __init__(self, kubectl: Kubectl, name: str | None, *, everywhere: bool) -> None:
        self.kubectl = kubectl
        self.name = name
        self.everywhere = everywhere

    def read(self) -> list[DisplayedGroup]:
        if self.name is not None:
            return [read_group(self.kubectl.get(GROUPS, self.name))]
        found = self.kubectl.list_objects(GROUPS, all_namespaces=self.everywhere)
        return [read_group(resource) for resource in found]


def _wait(source: _StatusSource, console: Console, timeout_s: float) -> bool:
    """Wait for all groups to be Ready; return whether they were, in time."""
    deadline, shown = time.monotonic() + timeout_s, ""
    while True:
        groups = source.read()
        waiting = [group for group in groups if not group.is_ready]
        if groups and not waiting:
            return True
        line = "; ".join(f"{one.name}: {_join_reason(one.ready)}" for one in waiting)
        if line != shown:
            console.note(f"waiting for {line}" if groups else "waiting for a group")
            shown = line
        left = deadline - time.monotonic()
        if left <= 0:
            console.note(f"not Ready within {timeout_s:g} s")
            return False
        time.sleep(min(_POLL_S, left))


def _join_reason(condition: ConditionFacts) -> str:
    return f"{condition.reason}: {condition.message}" if condition.message else condition.reason


def _show(
    groups: Sequence[DisplayedGroup], source: _StatusSource, console: Console, *, now: datetime
) -> None:
    if console.output == "name":
        for group in groups:
            console.write(f"streamconsumergroup.pelops.dev/{group.name}")
    elif not console.is_text:
        reports = [render_facts(group) for group in groups]
        console.document({"apiVersion": API_VERSION, "kind": "StatusReport", "groups": reports})
    elif source.name is not None:
        _show_one(groups[0], source.kubectl, console, now=now)
    else:
        _show_table(groups, source, console, now=now)


def _show_table(
    groups: Sequence[DisplayedGroup], source: _StatusSource, console: Console, *, now: datetime
) -> None:
    if not groups:
        where = "" if source.everywhere else f" in namespace {source.kubectl.namespace}"
        console.note(f"No StreamConsumerGroups found{where}.")
        return
    columns: tuple[Column, ...] = COLUMNS
    if source.everywhere:
        columns = (Column(name="NAMESPACE"), *columns)
    console.table(
        columns,
        [
            ((group.namespace,) if source.everywhere else ()) + _render_row(group, now)
            for group in groups
        ],
    )
    suspect = next((group for group in groups if not group.is_ready), None)
    if suspect is not None:
        console.line()
        console.next("status", suspect.name, "-n", suspect.namespace)


def _render_row(group: DisplayedGroup, now: datetime) -> tuple[Cell, ...]:
    ready = group.ready
    return (
        group.name,
        Styled(ready.status, group.style),
        ready.reason,
        group.lag_cell,
        group.pending,
        Styled(f"{group.stuck:,}", Style.WARNING) if group.stuck else group.stuck,
        render_age_of(group.oldest_pending_time, now) if group.oldest_pending_time else None,
        group.dead_letters,
        group.workers_cell,
        render_age_of(group.created, now),
        str(group.spec.get("stream", "")),
        group.group_name,
        ready.message,
    )


def _show_one(group: DisplayedGroup, kubectl: Kubectl, console: Console, *, now: datetime) -> None:
    mark = MARKS[group.style]
    console.line(
        Styled(f"{group.namespace}/{group.name}", Style.STRONG),
        "   ",
        Styled(f"{mark} {group.state}", group.style),
    )
    if group.ready.message and not group.is_ready:
        console.line(f"  {group.ready.message}", indent=2)
    pods, events, gauges = run_together(
        partial(_read_pods, group, kubectl),
        partial(_read_events, group, kubectl),
        partial(fetch_gauges, kubectl),
    )
    # Service teams have no right to the operator's metrics: their status has no rates.
    seen = {} if isinstance(gauges, CommandFailed) else gauges
    for label, *parts in describe_group(group, seen.get((group.namespace, group.name)), now):
        console.line(Styled(f"{label:<{_LABEL}}", Style.FAINT), *parts, indent=_LABEL)
    _show_conditions(group, console, now)
    if isinstance(pods, CommandFailed):
        console.note(f"pods are not shown: {pods}")
    else:
        _show_pods(pods, console, now)
    if isinstance(events, CommandFailed):
        console.note(f"events are not shown: {events}")
    else:
        show_events(events, console, now)
    words = suggest_next(group)
    if words:
        console.line()
        console.next(*words)


def _read_pods(group: DisplayedGroup, kubectl: Kubectl) -> list[Object]:
    selector = group.status.get("selector")
    if not selector:
        return []
    return kubectl.list_objects("pods", namespace=group.namespace, selector=str(selector))


def _read_events(group: DisplayedGroup, kubectl: Kubectl) -> list[Object]:
    about = f"involvedObject.name={group.name},involvedObject.kind=StreamConsumerGroup"
    return kubectl.list_objects("events", namespace=group.namespace, field_selector=about)


def describe_group(
    group: DisplayedGroup, gauges: GroupGauges | None, now: datetime
) -> Iterator[tuple[str, *tuple[Text, ...]]]:
    """Yield a label and the parts of a line for each section that the group has."""
    if group.deleting:
        yield "Deletion", Styled("the resource is being deleted", Style.WARNING)
    if group.is_suspended:
        yield "Paused", *_describe_pause(group, now)
    server = group.part("summary").get("redis")
    redis = f" at Redis {server}" if server else ""
    yield "Stream", f"{group.spec.get('stream')}, group {group.group_name}{redis}"
    yield "Backlog", *_describe_backlog(group, now)
    row = build_row(group, gauges, now)
    if row.arrival_rate is not None and row.acknowledge_rate is not None:
        yield "Rates", describe_rates(row)
    recovery = _describe_recovery(group, now)
    if recovery:
        yield "Recovery", recovery
    workers = _describe_workers(group)
    if workers:
        yield "Workers", workers
    letters = group.dead_letters
    if letters is not None:
        key = group.part("deadLetter").get("stream", "")
        style = Style.WARNING if letters else Style.GOOD
        what = "dead letter" if letters == 1 else "dead letters"
        yield "DLQ", Styled(f"{letters:,} {what}", style), f" in {key}"


def _describe_pause(group: DisplayedGroup, now: datetime) -> Iterator[Text]:
    who, reason = group.annotations.get(PAUSED_BY), group.annotations.get(PAUSE_REASON)
    when = group.annotations.get(PAUSED_AT)
    yield Styled("spec.suspend is true", Style.WARNING)
    if who:
        yield f", set by {who}"
    if when:
        yield f" {render_age_of(when, now)} ago"
    if reason:
        yield f": {reason}"


def _describe_backlog(group: DisplayedGroup, now: datetime) -> Iterator[Text]:
    if group.pending is None:
        yield Styled("unknown", Style.WARNING)
        return
    if group.lag is not None and group.lag_known:
        yield f"{group.lag + group.pending:,}: "
    yield f"undelivered {group.lag_cell}, pending {group.pending:,}"
    if group.oldest_pending_time:
        yield f" (oldest {render_age_of(group.oldest_pending_time, now)})"
    if group.stuck is not None:
        yield ", "
        yield Styled(f"stuck {group.stuck:,}", Style.WARNING if group.stuck else Style.GOOD)


def describe_rates(row: Row) -> str:
    """Return the rates of arrival and acknowledgement, and when the backlog will be empty."""
    text = f"in {render_rate(row.arrival_rate)}/s, done {render_rate(row.acknowledge_rate)}/s"
    if row.empty_in is None:
        return text
    if row.empty_in == "never":
        return f"{text}; at this rate the backlog never drains"
    return f"{text}; at this rate the backlog drains in {row.empty_in}"


_RECOVERED: Final = (
    ("requeued", "requeued"),
    ("released", "released"),
    ("deadLettered", "dead-lettered"),
    ("payloadGone", "without payload"),
    ("waiting", "waiting for a retry"),
    ("offered", "offered to workers"),
    ("unmovable", "unmovable"),
)


def _describe_recovery(group: DisplayedGroup, now: datetime) -> str:
    recovery = group.part("recovery")
    counts = [f"{word} {recovery[key]:,}" for key, word in _RECOVERED if recovery.get(key)]
    if (group.spec.get("recovery") or {}).get("dryRun"):
        counts.insert(0, "dry run")
    scan = recovery.get("lastScanTime")
    if scan:
        counts.append(f"last scan {render_age_of(scan, now)} ago")
    return ", ".join(counts)


def _describe_workers(group: DisplayedGroup) -> str:
    if group.workers is None:
        return ""
    ready, wanted = group.workers
    scaling = next((one for one in group.other_conditions if one.type == "ScalingActive"), None)
    text = f"{ready} of {wanted} ready"
    limit = (group.spec.get("scaling") or {}).get("maxReplicas")
    if limit:
        text += f", maximum {limit}"
    return f"{text}; {scaling.message}" if scaling and scaling.message else text


def _show_conditions(group: DisplayedGroup, console: Console, now: datetime) -> None:
    if console.is_wide:
        console.line()
        columns = ("TYPE", "STATUS", "REASON", "SINCE", "MESSAGE")
        rows = [
            (
                condition.type,
                Styled(condition.status, _style_of(condition)),
                condition.reason,
                render_age_of(condition.since, now),
                condition.message,
            )
            for condition in group.conditions
        ]
        console.table([Column(name=name) for name in columns], rows)
        return
    parts: list[Text] = []
    for one in group.other_conditions:
        parts += [" · " if parts else "", f"{one.type} ", Styled(one.status, _style_of(one))]
    if parts:
        console.line(Styled(f"{'Status':<{_LABEL}}", Style.FAINT), *parts, indent=_LABEL)
    for condition in group.other_conditions:
        if condition.type == "ScalingActive":
            continue  # its message is beside the workers
        if not condition.is_good and condition.message not in group.ready.message:
            console.line(" " * _LABEL, f"{condition.type}: {condition.message}", indent=_LABEL)


def _style_of(condition: ConditionFacts) -> Style:
    if condition.is_good:
        return Style.GOOD
    return Style.WARNING if condition.status == "Unknown" else Style.BAD


def _show_pods(pods: Sequence[Object], console: Console, now: datetime) -> None:
    if not pods:
        return
    shown = pods if console.is_wide else sorted(pods, key=_pod_order)[:_SHOWN_PODS]
    console.line()
    console.table(_POD_COLUMNS, [_render_pod(pod, now) for pod in shown])
    if len(shown) < len(pods):
        console.line(f"{len(pods) - len(shown)} more pods; -o wide shows all")


def _pod_order(pod: Object) -> tuple[bool, str]:
    """Pods with a problem first."""
    return _pod_state(pod) == "Running" and _is_pod_ready(pod), pod["metadata"]["name"]


def _render_pod(pod: Object, now: datetime) -> tuple[Cell, ...]:
    status, state = pod.get("status", {}), _pod_state(pod)
    ready = _is_pod_ready(pod)
    restarts = sum(one.get("restartCount", 0) for one in status.get("containerStatuses") or ())
    return (
        pod["metadata"]["name"],
        Styled(state, Style.GOOD if state == "Running" and ready else Style.WARNING),
        str(ready),
        restarts,
        render_age_of(pod["metadata"].get("creationTimestamp"), now),
        pod.get("spec", {}).get("nodeName"),
    )


def _is_pod_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)


def _pod_state(pod: Object) -> str:
    """The word that kubectl shows: the reason of a container that does not run, else the phase."""
    if "deletionTimestamp" in pod["metadata"]:
        return "Terminating"
    status = pod.get("status", {})
    for container in status.get("containerStatuses") or ():
        state = container.get("state") or {}
        reason = (state.get("waiting") or {}).get("reason") or (state.get("terminated") or {}).get(
            "reason"
        )
        if reason:
            return str(reason)
    return str(status.get("reason") or status.get("phase", "Unknown"))


def show_events(events: Sequence[Object], console: Console, now: datetime) -> None:
    """Print a table of the newest Kubernetes Events; nothing when there is none."""
    newest = sorted(events, key=_event_time)[-_SHOWN_EVENTS:]
    if not newest:
        return
    console.line()
    columns = (
        Column(name="LAST SEEN"),
        Column(name="TYPE"),
        Column(name="EVENT"),
        Column(name="MESSAGE"),
    )
    console.table(columns, list(_render_events(newest, now)))


def _render_events(events: Iterable[Object], now: datetime) -> Iterator[tuple[Cell, ...]]:
    for event in events:
        kind = str(event.get("type", ""))
        style = Style.GOOD if kind == "Normal" else Style.WARNING
        message = " ".join(str(event.get("message", "")).split())
        seen = render_age_of(_event_time(event), now)
        yield seen, Styled(kind, style), str(event.get("reason", "")), message


def _event_time(event: Object) -> str:
    series = event.get("series") or {}
    found = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return str(found or event["metadata"].get("creationTimestamp", ""))
