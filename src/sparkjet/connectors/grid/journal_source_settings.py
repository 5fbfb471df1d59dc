"""Settings of the source ``sparkjet-grid-journal``."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from sparkjet.connectors.grid.location import Location
from sparkjet.connectors.grid.options import (
    FAIL_ON_DATA_LOSS,
    GRID_JOURNAL,
    INCLUDE_METADATA,
    JOURNAL_SOURCE_OPTIONS,
    MAX_OFFSETS,
    READER,
    STARTING_OFFSETS,
)
from sparkjet.errors import AnalysisError, nearest
from sparkjet.options import Options
from sparkjet.sources.alignment import MAX_DRIFT, check_limited
from sparkjet_grid.journal_reader import Journal
from sparkjet_grid.places import JournalPlace

NAME = GRID_JOURNAL
LATEST, EARLIEST = -1, -2
"""Offsets that stand for a partition's end and beginning, as in Spark's option for Kafka."""
_WORDS = {"latest": LATEST, "earliest": EARLIEST}
_PARTITION = re.compile("0|[1-9][0-9]{0,8}")
_EXAMPLE = '{"0": 23, "1": -2}'


@dataclass(frozen=True)
class JournalSettings:
    """The parsed options; travel to tasks.

    Attributes:
        location: Location of the journal.
        starting: The offset for every partition, or for each.
        max_offsets: The option ``maxOffsetsPerTrigger``.
        fail_on_data_loss: The option of the same name.
        reader: The option of the same name.
        metadata: The option ``includeMetadata``.
        max_drift: The option ``maxWatermarkDrift``, in microseconds.
    """

    location: Location
    starting: int | Mapping[int, int] = EARLIEST
    max_offsets: int | None = None
    fail_on_data_loss: bool = True
    reader: str | None = None
    metadata: bool = False
    max_drift: int | None = None

    @staticmethod
    def of(options: Options) -> JournalSettings:
        """The settings in some options; connects to nothing."""
        options.only(JOURNAL_SOURCE_OPTIONS, NAME)
        check_limited(options[MAX_DRIFT], options[MAX_OFFSETS], MAX_OFFSETS.name)
        reader = options[READER]
        if reader is not None:
            JournalPlace.of(reader, "reader")
        return JournalSettings(
            Location.of(options, NAME, "journal"),
            _starting(options[STARTING_OFFSETS]),
            options[MAX_OFFSETS],
            options[FAIL_ON_DATA_LOSS],
            reader,
            options[INCLUDE_METADATA],
            options[MAX_DRIFT],
        )

    def starts(self, first: Mapping[int, int], ends: Mapping[int, int]) -> dict[int, int]:
        """The offset at which a new query starts in each partition."""
        wanted = dict.fromkeys(ends, self.starting) if isinstance(self.starting, int) else dict(self.starting)
        wrong = [f"lacks partition {each}" for each in ends if each not in wanted]
        wrong += [f"names partition {each}, which does not exist" for each in wanted if each not in ends]
        wrong += [
            f"has {offset} for partition {each}, which has {first[each]} to {ends[each]}"
            for each, offset in wanted.items()
            if offset >= 0 and each in ends and not first[each] <= offset <= ends[each]
        ]
        if wrong:
            message = (
                f"option: startingOffsets {', '.join(wrong)}. Give every partition a number. (-2 is its first offset, "
                "-1 its end.)"
            )
            raise AnalysisError(message)
        named = {LATEST: ends, EARLIEST: first}
        return {each: named[offset][each] if offset < 0 else offset for each, offset in sorted(wanted.items())}

    @property
    def moving(self) -> bool:
        """Whether a partition starts at its end, which moves."""
        given = {self.starting} if isinstance(self.starting, int) else {*self.starting.values()}
        return LATEST in given


def open_journal(location: Location) -> Journal:
    """The journal at a location."""
    return Journal(location.uri, location.name, **location.files)


def _starting(text: str) -> int | dict[int, int]:
    if not text.lstrip().startswith("{"):
        if text.lower() not in _WORDS:
            raise AnalysisError(f'option: startingOffsets="{text}" is neither JSON nor a word; {nearest(text, _WORDS)}')
        return _WORDS[text.lower()]
    try:
        found = json.loads(text)
    except ValueError:
        found = {}
    if not found or not all(
        _PARTITION.fullmatch(each) and type(offset) is int and offset >= EARLIEST for each, offset in found.items()
    ):
        message = f"option: startingOffsets={text!r} has no offset for each partition; write e.g. {_EXAMPLE}."
        raise AnalysisError(message)
    return {int(each): offset for each, offset in found.items()}
