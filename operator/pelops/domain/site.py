"""Addresses of the project: every link that users see begins here."""

from __future__ import annotations

from typing import Final

SITE: Final = "https://pelops.dev"


def page_url(page: str, *, section: str = "") -> str:
    """Return the address of a page of the documentation.

    >>> page_url("runbook/doctor", section="acl")
    'https://pelops.dev/docs/latest/runbook/doctor/#acl'
    """
    anchor = f"#{section}" if section else ""
    return f"{SITE}/docs/latest/{page}/{anchor}"
