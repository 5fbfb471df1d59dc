"""How the substreams of an epoch stand to each other: found once an epoch, as a query may have thousands."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparkjet.engine.progress_report import SubstreamReport

FURTHEST = 20
"""Substreams that are shown by name."""
OTHERS = "other substreams"
"""The name of all that are not."""


@dataclass(frozen=True)
class Others:
    """The substreams that are not shown by name.

    Attributes:
        count: How many there are.
        holding: How many of them hold the query's watermark.
        idle: How many are silent.
        furthest: The one furthest behind of those that have rows; an idle one only if all are.
    """

    count: int
    holding: int
    idle: int
    furthest: SubstreamReport | None


@dataclass(frozen=True)
class Standing:
    """Who is behind whom.

    Attributes:
        named: Names of the substreams furthest behind, the last one first; those that are not waited for come at the
            end.
        others: All others.
        waited: On how many the query's watermark depends.
        empty: How many of these have no rows yet; they hold everything.
        last: How many of these have the lowest watermark; none where all are level.
        behind: By how much these are behind the next; 0 where all are level.
    """

    named: list[str]
    others: Others
    waited: int
    empty: int
    last: int
    behind: int


def standing_of(substreams: dict[str, SubstreamReport]) -> Standing:
    """Sort the substreams of an epoch out."""
    waited: list[tuple[bool, int, str]] = []
    unwaited: list[tuple[bool, int, str]] = []
    for name, each in substreams.items():
        # The watermark depends on it: not if it is idle, was retired, or never had a row with an event time. Of the
        # latter two a report only counts the rows that were dropped.
        is_waited_for = not each.idle and (each.watermark is not None or each.holds_watermark)
        (waited if is_waited_for else unwaited).append((each.watermark is not None, each.watermark or 0, name))
    furthest = heapq.nsmallest(FURTHEST, waited)
    furthest += heapq.nsmallest(FURTHEST - len(furthest), unwaited)
    named = [name for *_, name in furthest]
    times = [time for has_rows, time, _ in waited if has_rows]
    lowest = min(times, default=0)
    following = min([time for time in times if time > lowest], default=lowest)
    return Standing(
        named=named,
        others=_others(substreams, set(named)),
        waited=len(waited),
        empty=len(waited) - len(times),
        last=times.count(lowest) if following > lowest else 0,
        behind=following - lowest,
    )


def _others(substreams: dict[str, SubstreamReport], named: set[str]) -> Others:
    # Lists rather than generators: this is most of what an epoch of a thousand substreams costs here.
    others = [each for name, each in substreams.items() if name not in named] if len(substreams) > len(named) else []
    known = [(each.idle, each.watermark, at) for at, each in enumerate(others) if each.watermark is not None]
    return Others(
        count=len(others),
        holding=[each.holds_watermark for each in others].count(True),
        idle=[each.idle for each in others].count(True),
        furthest=others[min(known)[2]] if known else None,
    )
