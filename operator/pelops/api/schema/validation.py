"""What a resource that cannot be read lacks, in words for its author."""

from __future__ import annotations

from typing import Final

from pydantic import ValidationError

_MAX_ERRORS_REPORTED: Final = 5


def render_errors(error: ValidationError) -> str:
    """The first problems, each with the path of its field.

    Values stay out: a field may hold what somebody took for the right place of a password.
    """
    details = error.errors(include_url=False, include_context=False, include_input=False)
    reported = [f"{_render_path(d['loc'])}: {d['msg']}" for d in details[:_MAX_ERRORS_REPORTED]]
    if len(details) > _MAX_ERRORS_REPORTED:
        reported.append(f"and {len(details) - _MAX_ERRORS_REPORTED} more")
    return "; ".join(reported)


def _render_path(location: tuple[int | str, ...]) -> str:
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return path.lstrip(".")
