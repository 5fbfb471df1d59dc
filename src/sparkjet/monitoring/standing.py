"""Standing of an epoch's substreams relative to each other: computed once per epoch, as there may be thousands."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparkjet.engine.progress_report import SubstreamReport

FURTHEST = 20
"""Number of substreams that are shown by name."""
OTHERS = "other substreams"
"""Collective name of the others."""


@dataclass(frozen=True)
class Others:
    """The substreams that are not shown by name.

    Attributes:
        count: Their number.
        holding: Number of them that hold the query's watermark.
        idle: Number of them that are silent.
        held: Number of them that ``maxWatermarkDrift`` holds back.
        furthest: The one furthest behind among those that have rows; an idle one only if all are idle.
    """

    count: int
    holding: int
    idle: int
    held: int
    furthest: SubstreamReport | None


@dataclass(frozen=True)
class Standing:
    """Which substreams are behind which.

    Attributes:
        named: Names of the substreams furthest behind, the last one first; those that are not waited for come at the
            end.
        others: All others.
        waited: Number of substreams on which the query's watermark depends.
        empty: Number of these without rows so far; they hold everything.
        last: Number of these with the lowest watermark; zero if all are level.
        behind: Distance of these to the next; 0 if all are level.
    """

    named: list[str]
    others: Others
    waited: int
    empty: int
    last: int
    behind: int


def standing_of(substreams: dict[str, SubstreamReport]) -> Standing:
    """Sort out the substreams of an epoch."""
    waited: list[tuple[bool, int, str]] = []
    unwaited: list[tuple[bool, int, str]] = []
    for name, each in substreams.items():
        # The watermark depends on it: not if it is idle, was retired, or never had a row with an event time. For the
        # latter two, a report only counts the rows that were dropped.
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
        held=[each.held_back is not None for each in others].count(True),
        furthest=others[min(known)[2]] if known else None,
    )
