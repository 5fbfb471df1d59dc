"""The engine's side of alignment: says how far event time has come in partitions, and reads who was held back."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkjet.engine.caught_up import shared_out, substream_of
from sparkjet.sources import alignment
from sparkjet.sources.carrying import leaves
from sparkjet.time import MIN

if TYPE_CHECKING:
    from sparkjet.plan.inputs import Input
    from sparkjet.time import InputTracker


_KEPT = 2
"""Positions whose files are kept."""


@dataclass(frozen=True)
class HeldBack:
    """A substream that was held back: by how many microseconds it was ahead, and of which."""

    ahead: int
    by: str


@dataclass(frozen=True)
class _Aligned:
    """An input that reads a source that aligns: the name of the file about its offset, and what is in that."""

    input: Input
    file: str
    paths: Sequence[str]
    said: Mapping[str, Any]
    queues: bool

    def substream(self, path: str) -> str:
        # A queue may have any name.
        return self.input.prefix + (path if self.queues else substream_of(path, len(self.input.watermark.by)))


class Alignment:
    """Leaves a file about each end of a batch for the planner that continues from there; one thread at a time.

    The files of a position are there until the planner has gone two positions further: an epoch may be run again.

    Attributes:
        held: The substreams of which partitions were held back in the batch that was looked at last.
    """

    def __init__(self) -> None:
        self._written: list[set[str]] = []
        self._aligned: list[_Aligned] = []
        self.held: dict[str, HeldBack] = {}

    def look(self, inputs: Sequence[Input], offsets: Sequence[str]) -> None:
        """Look at what the sources that align have decided in a batch.

        Args:
            inputs: The inputs of the query.
            offsets: The end offset of each source.

        >>> from sparkjet.plan.inputs import Input, WatermarkSettings
        >>> from sparkjet.time import limiting_lag
        >>> settings = WatermarkSettings("ts", limiting_lag(0), by=("topic", "partition"), partitions=True)
        >>> said = '{"reader": "r", "held": {"t/0": 400}, "slowest": "t/1"}'
        >>> offset = '{"source": "s", "offsets": {}, "watermarks": {}, "alignment": ' + said + '}'
        >>> one = Alignment()
        >>> one.look([Input("", settings, sources=1)], [offset])
        >>> one.held
        {'t/0': HeldBack(ahead=400, by='t/1')}
        """
        self._aligned = list(_aligned(inputs, offsets))
        self.held = _held_back(self._aligned)

    @property
    def unread(self) -> dict[str, bool]:
        """Substreams that are held back have not been read to their end, whether or not their source reports it."""
        return dict.fromkeys(self.held, False)

    def tell(self, tracker: InputTracker) -> None:
        """Say how far event time has come at the ends of that batch, before Spark plans the next one from there.

        Args:
            tracker: The watermarks after the batch, or after a tick, by which a partition may be idle or retired.
        """
        files = _reached(self._aligned, tracker)
        if files and (not self._written or self._written[-1] != files.keys()):
            self._written.append(set(files))
            for name in files:
                alignment.keep(name)
        for name, reached in files.items():
            alignment.write(name, reached)
        self._drop(_KEPT)

    def close(self) -> None:
        """Remove the files: the query has ended."""
        self._drop(0)

    def _drop(self, kept: int) -> None:
        while len(self._written) > kept:
            for name in self._written.pop(0):
                alignment.drop(name)


def held_by_name(offsets: Iterable[str], substreams: Collection[str]) -> dict[str, HeldBack]:
    """The same for a record, which does not have the inputs: a substream ends with the path of its partition.

    >>> said = '{"reader": "r", "held": {"t/0": 400}, "slowest": "t/1"}'
    >>> offset = '{"source": "s", "offsets": {}, "watermarks": {}, "alignment": ' + said + '}'
    >>> held_by_name([offset], ["left/t/0", "left/t/1"])
    {'left/t/0': HeldBack(ahead=400, by='left/t/1')}
    """

    def named(path: str) -> list[str]:
        return [each for each in substreams if path == each or each.endswith(f"/{path}") or path.endswith(f"/{each}")]

    found: dict[str, HeldBack] = {}
    for _, said in filter(None, map(_decoded, offsets)):
        for path, ahead in said["held"].items():
            for name, by in zip(named(path), named(said["slowest"]), strict=False):
                found[name] = HeldBack(ahead, by)
    return found


def _held_back(aligned: Iterable[_Aligned]) -> dict[str, HeldBack]:
    found: dict[str, HeldBack] = {}
    for each in aligned:
        by = each.substream(each.said["slowest"])
        for path, ahead in each.said["held"].items():
            found[each.substream(path)] = HeldBack(ahead, by)
    return found


def _reached(aligned: Sequence[_Aligned], tracker: InputTracker) -> dict[str, dict[str, int]]:
    """For each aligned source, the name of its file and what is in it: the watermark of each partition that counts.

    If several inputs read a source, the one that has come least far with a partition decides.
    """
    found: dict[str, dict[str, int]] = {}
    progress = tracker.progress() if aligned else ()
    active = {each.id: each.watermark for each in progress if not each.idle and each.watermark != MIN}
    for each in aligned:
        reached = found.setdefault(each.file, {})
        for path in each.paths:
            watermark = active.get(each.substream(path))
            if watermark is not None:
                reached[path] = min(watermark, reached.get(path, watermark))
    return found


def _aligned(inputs: Sequence[Input], offsets: Sequence[str]) -> Iterator[_Aligned]:
    for each, own in shared_out(inputs, offsets):
        for text in own:
            decoded = _decoded(text)
            if decoded is not None:
                offset, said = decoded
                queues = alignment.is_of_queues(offset)
                paths = tuple(offset["queues"] if queues else leaves(offset["offsets"]))
                yield _Aligned(each, alignment.file_of(offset), paths, said, queues)


def _decoded(text: str) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
    """The offset of a source that aligns, and what it says of alignment."""
    # Most do not, and an offset may have thousands of partitions.
    offset = json.loads(text) if f'"{alignment.KEY}"' in text else None
    said = alignment.alignment_in(offset)
    return None if offset is None or said is None else (offset, said)
