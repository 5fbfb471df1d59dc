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


class Alignment:
    """Leaves a file about each end of a batch for the planner that continues from there; one thread at a time.

    The files of a position are there until the planner has gone two positions further: an epoch may be run again.
    """

    def __init__(self) -> None:
        self._written: list[set[str]] = []

    def tell(self, inputs: Sequence[Input], offsets: Sequence[str], tracker: InputTracker) -> None:
        """Say how far event time has come at the ends of a batch, before Spark plans the next one from there.

        Args:
            inputs: The inputs of the query.
            offsets: The end offset of each source.
            tracker: The watermarks after the batch.
        """
        files = dict(_reached(inputs, offsets, tracker))
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


def held_back(inputs: Sequence[Input], offsets: Sequence[str]) -> dict[str, HeldBack]:
    """The substreams of which partitions were held back in a batch, by its end offsets.

    >>> from sparkjet.plan.inputs import Input, WatermarkSettings
    >>> from sparkjet.time import limiting_lag
    >>> one = Input("", WatermarkSettings("ts", limiting_lag(0), by=("topic", "partition"), partitions=True), sources=1)
    >>> said = '{"reader": "r", "held": {"t/0": 400}, "slowest": "t/1"}'
    >>> held_back([one], ['{"source": "s", "offsets": {}, "watermarks": {}, "alignment": ' + said + '}'])
    {'t/0': HeldBack(ahead=400, by='t/1')}
    """
    found: dict[str, HeldBack] = {}
    for each, _, said in _aligned(inputs, offsets):
        columns = len(each.watermark.by)
        for path, ahead in said["held"].items():
            by = each.prefix + substream_of(said["slowest"], columns)
            found[each.prefix + substream_of(path, columns)] = HeldBack(ahead, by)
    return found


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


def _reached(
    inputs: Sequence[Input], offsets: Sequence[str], tracker: InputTracker
) -> Iterator[tuple[str, dict[str, int]]]:
    """For each aligned source, the name of its file and what is in it: the watermark of each partition that counts.

    If several inputs read a source, the one that has come least far with a partition decides.
    """
    found: dict[str, dict[str, int]] = {}
    aligned = list(_aligned(inputs, offsets))
    progress = tracker.progress() if aligned else ()
    active = {each.id: each.watermark for each in progress if not each.idle and each.watermark != MIN}
    for each, offset, _ in aligned:
        reached = found.setdefault(alignment.file_of(offset), {})
        for path in leaves(offset["offsets"]):
            watermark = active.get(each.prefix + substream_of(path, len(each.watermark.by)))
            if watermark is not None:
                reached[path] = min(watermark, reached.get(path, watermark))
    yield from found.items()


def _aligned(
    inputs: Sequence[Input], offsets: Sequence[str]
) -> Iterator[tuple[Input, Mapping[str, Any], Mapping[str, Any]]]:
    """The offsets of sources that align: an input that reads the source, the offset, and what it says of alignment."""
    for each, own in shared_out(inputs, offsets):
        for text in own:
            decoded = _decoded(text)
            if decoded is not None:
                yield each, *decoded


def _decoded(text: str) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
    """The offset of a source that aligns, and what it says of alignment."""
    # Most do not, and an offset may have thousands of partitions.
    offset = json.loads(text) if f'"{alignment.KEY}"' in text else None
    said = alignment.alignment_in(offset)
    return None if offset is None or said is None else (offset, said)
