"""The workers of one group, and what was given to them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from demo.declaration import Declaration
from demo.recovery import Redriven, Victim
from demo.store import Store
from demo.workers import History


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """Workers of one kind, with a stream of their own."""

    label: str  # for people
    declaration: Declaration
    store: Store
    keeps_errors: bool  # for them a file that does not parse is a result too

    def find_own(self, history: History) -> History:
        """The history of its workers."""
        return history.select(self.declaration.owns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deeds:
    """What the demo did to one team."""

    ids: Mapping[str, str]  # of the entries that it added, by path
    victims: Sequence[Victim]
    redriven: Redriven
