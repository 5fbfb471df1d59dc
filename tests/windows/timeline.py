"""Timelines: input, watermark and rows of a window test, drawn in text.

One column is one unit of time; the ruler says where they begin. Blank lines separate the epochs. In each, a line of
digits is the input of a key (an event of that value at that time), ``watermark`` points with ``|`` at the watermark at
the epoch's end or says ``end`` (everything is closed), and ``[==2==)`` is a final row of a key: its window and, inside,
the number of its events. ``late`` is the number of late events in all::

    time       0         10        20
    a            1  2        3
    watermark                 |
    a            [=====2=====)

    watermark end
    a                        [=====1===)
    late 0
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from tests.windows.model import Batch, Event, Row

_NUMBER = re.compile(r"-?\d+")
_EVENT = re.compile(r"-?\d")
_ROW = re.compile(r"\[=*(-?\d+)=*\)")


@dataclass(frozen=True)
class Timeline:
    """A drawing that was read: a batch and the rows for each epoch, and the number of late events."""

    batches: list[Batch]
    rows: list[list[Row]]
    late: int

    @property
    def events(self) -> list[Event]:
        """The events of all epochs."""
        return [event for batch in self.batches for event in batch.events]


def timeline(drawing: str) -> Timeline:
    """Read a drawing."""
    epochs = [epoch.splitlines() for epoch in re.split(r"\n\s*\n", textwrap.dedent(drawing).strip("\n"))]
    origin = _origin(epochs[0].pop(0))
    batches, rows, late = [], [], 0
    for epoch in epochs:
        events: list[Event] = []
        found: list[Row] = []
        watermark: int | None = None
        marked = False
        for line in epoch:
            label, drawn = _split(line)
            key = None if label == "null" else label
            if label == "late":
                late = int(drawn)
            elif label == "watermark":
                assert not marked, f"two watermarks in an epoch: {line}"
                marked, watermark = True, None if drawn.strip() == "end" else drawn.index("|") - origin
            elif "[" in drawn:
                found += [
                    (key, each.start() - origin, each.end() - 1 - origin, (int(each[1]),))
                    for each in _drawn(_ROW, drawn)
                ]
            else:
                events += [Event(key, each.start() - origin, int(each[0])) for each in _drawn(_EVENT, drawn)]
        assert marked, f"an epoch without its watermark: {epoch}"
        batches.append(Batch(events, watermark))
        rows.append(found)
    return Timeline(batches, rows, late)


def _origin(ruler: str) -> int:
    """The column of time 0, on which all numbers of the ruler agree."""
    label, drawn = _split(ruler)
    assert label == "time", f"a timeline begins with its ruler, not with {ruler!r}"
    origins = {each.start() - int(each[0]) for each in _NUMBER.finditer(drawn)}
    assert len(origins) == 1, f"the ruler is not even: {ruler}"
    return origins.pop()


def _split(line: str) -> tuple[str, str]:
    """The label of a line, and the line without it: columns stay what they are."""
    label = line.split(maxsplit=1)[0]
    return label, " " * len(label) + line[len(label) :]


def _drawn(pattern: re.Pattern[str], drawn: str) -> Iterator[re.Match[str]]:
    """The items drawn in a line, which must have nothing else."""
    assert not pattern.sub("", drawn).strip(" ."), f"cannot read {drawn!r}"
    return pattern.finditer(drawn)
