"""The Events of the resources that report recovery and of scaling, each once, as they come."""

from demo.following import Following, Line

RECOVERY = frozenset({"Requeued", "Released", "DeadLettered", "PayloadGone", "GroupRecreated"})
SCALING = frozenset({"ScaledUp", "ScaledDown"})
REPORTED = RECOVERY | SCALING

TEMPLATE = (
    r"jsonpath={.type}{'\t'}{.object.type}{'\t'}{.object.reason}{'\t'}"
    r"{.object.message}{'\n'}"
)


SELECTOR = "involvedObject.kind=StreamConsumerGroup"
WATCH_EVENTS = (
    *("get", "events", "--watch", "--output-watch-events", "--field-selector", SELECTOR),
    *("-o", TEMPLATE),
)


class Notices:
    """Reports each Event once."""

    def __init__(self, following: Following) -> None:
        self._following = following
        self._reported = 0

    def fresh(self) -> list[str]:
        """The Events that have come since the last call, a line for each."""
        lines = self._following.lines[self._reported :]
        self._reported += len(lines)
        return [text for line in lines if (text := read_event(line)) is not None]


def read_event(line: Line) -> str | None:
    """An Event for people; None for one that reports neither, or that is not new."""
    words = line.text.split(maxsplit=3)  # kubectl makes columns of what tabs separate
    if len(words) < 4 or words[0] != "ADDED" or words[2] not in REPORTED:
        return None
    return f"{words[1]:<7}  {words[2]:<12}  {words[3]}"
