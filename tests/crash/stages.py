"""Rules of queries whose stages are not all windows: what each stage gives, drops and keeps, epoch by epoch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from tests.crash.feeds import Event
from tests.crash.replay import Row, Rules

Dropped = tuple[dict[str, int], dict[str, int]]
"""Late rows and rows without an event time, by substream."""


@dataclass(frozen=True)
class Expected:
    """The expected remains of a query.

    Attributes:
        results: The rows of each output by its directory.
        late: The rows of the late-rows sink.
        dropped: What each stage has dropped, by its name in the record.
        kept: Names of the stages whose state never ends; that of the others must be empty.
    """

    results: Mapping[str, Counter[Row]]
    late: Counter[Row]
    dropped: Mapping[str, Dropped]
    kept: Collection[str] = field(default_factory=tuple)


@dataclass(frozen=True)
class StagesRules(Rules, ABC):
    """Each output has plain columns; ``step`` is the granularity of the watermark."""

    windowed: ClassVar[bool] = False
    sources: ClassVar[int] = 1
    """Number of sources, all of which read the feed."""

    def is_late(self, timestamp: int, watermark: int) -> bool:
        """Whether an event is older than the watermark."""
        return timestamp < watermark

    @abstractmethod
    def expected(self, recorded: Sequence[Sequence[Event]], closings: Collection[int]) -> Expected:
        """The files that a query must have left.

        Args:
            recorded: All batches of the query.
            closings: After how many batches a run ended.
        """

    def in_table(self, output: str, rows: Counter[Row]) -> Counter[Row]:
        """The rows of an output as a table has them that gets them too."""
        return rows
