"""Facts about substreams in the offsets of sources: which ones exist, and whether they have been read to the end."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from sparkjet.engine.spark_checkpoint import VOID
from sparkjet.sources.acknowledging.offset import QueueOffset
from sparkjet.sources.alignment import is_of_queues
from sparkjet.sources.carrying import CarryingOffset, leaves
from sparkjet.time import MIN, Carried, least_carried

if TYPE_CHECKING:
    from sparkjet.connectors.format import Hearing
    from sparkjet.plan.inputs import Input
    from sparkjet.time import Heard, InputTracker, SubstreamProgress


def caught_up(
    inputs: Sequence[Input], sources: Sequence[dict[str, Any]], substreams: Collection[str]
) -> dict[str, bool | None]:
    """For each substream: True at the end of its source, False if there is more, None if its source does not say.

    A source's offsets may be those of its partitions (``{"topic": {"0": 17}}``): a substream called ``0`` or
    ``topic/0`` is then judged by those, any other one by all of them.

    >>> from sparkjet.plan.inputs import Input, WatermarkSettings
    >>> from sparkjet.time import limiting_lag
    >>> one = Input("", WatermarkSettings("ts", limiting_lag(0)), sources=1)
    >>> progress = {"endOffset": {"clicks": {"0": 5, "1": 7}}, "latestOffset": {"clicks": {"0": 9, "1": 7}}}
    >>> caught_up([one], [progress], ["0", "clicks/1", "other"])
    {'0': False, 'clicks/1': True, 'other': False}
    """
    if len(sources) != sum(each.sources for each in inputs):
        # A source that two inputs read appears once in the progress.
        return dict.fromkeys(substreams)
    answers: dict[str, bool | None] = {}
    position = 0
    for each in inputs:
        own = sources[position : position + each.sources]
        position += each.sources
        for full_name in substreams:
            if full_name.startswith(each.prefix):
                name = full_name.removeprefix(each.prefix)
                answers[full_name] = _all(_at_end(name, s.get("endOffset"), s.get("latestOffset")) for s in own)
    return answers


def in_order(offsets: Mapping[str, str], names: Sequence[str]) -> list[str]:
    """Offsets in the order of the query's sources, whether Spark names or numbers the sources.

    >>> in_order({"10": "c", "2": "b", "0": "a"}, ())
    ['a', 'b', 'c']
    >>> in_order({"removed": "c", "views": "b", "clicks": "a"}, ("clicks", "views", "added"))
    ['a', 'b', '-']
    """
    if names:
        return [offsets.get(name, VOID) for name in names]
    return [offsets[number] for number in sorted(offsets, key=int)]


def heard_in(
    hearings: Sequence[Hearing | None],
    offsets: Sequence[str],
    names: Sequence[str],
    before: Mapping[str, Heard],
    recorded: Mapping[str, Heard],
) -> tuple[list[str], dict[str, Heard]]:
    """The offsets of a batch with what writers had told up to there, where it is not in them already.

    Args:
        hearings: Of the query's sources; none if none of them has to be asked.
        offsets: Of the same sources.
        names: Their names; none if Spark numbers them.
        before: What had been told up to the batch before, by the source's name or number.
        recorded: What had been told up to this one, when it was run first; that counts.

    Returns:
        Also what had been told up to this one.
    """
    # A source that several inputs read appears once in the batch.
    if len(offsets) == 1:
        # Not all of them may have asked.
        hearings = [next((each for each in hearings if each is not None), None)] if hearings else hearings
    if len(hearings) != len(offsets):
        return [*offsets], {}
    texts, heard = [*offsets], {}
    for number, (hearing, text) in enumerate(zip(hearings, offsets, strict=True)):
        if hearing is None or text == VOID:
            continue
        key = names[number] if names else str(number)
        found = recorded.get(key) or hearing.heard(json.loads(text), before.get(key))
        if found is None:
            # Waited for, as one that has not begun.
            texts[number] = msgspec.json.encode(CarryingOffset(key, {"": 0}, {})).decode()
            continue
        heard[key] = found
        watermarks = found.writers | dict.fromkeys(found.others)
        carrying = CarryingOffset(key, dict.fromkeys(watermarks, found.version), watermarks)
        texts[number] = msgspec.json.encode(carrying).decode()
    return texts, heard


def carried(inputs: Sequence[Input], offsets: Sequence[str], tracker: InputTracker) -> Iterator[tuple[str, int | None]]:
    """The watermark that the offsets of a batch carry for each substream.

    A substream that is not a partition can have rows in all of them: it gets the least.

    >>> from sparkjet.plan.inputs import Input, WatermarkSettings
    >>> from sparkjet.plan.inputs import tracker_of
    >>> from sparkjet.time import carried as policy
    >>> one = Input("", WatermarkSettings("ts", policy(), by=("sensor",)), sources=1)
    >>> tracker = tracker_of([one], [None])
    >>> offset = '{"source": "grid-journal", "offsets": {"0": 17, "1": 4}, "watermarks": {"0": 9, "1": 7}}'
    >>> tracker.add("a", now=0)
    >>> list(carried([one], [offset], tracker))
    [('a', 7)]
    """
    for each, own in shared_out(inputs, offsets):
        found = [CarryingOffset.found_in(None if text == VOID else json.loads(text)) for text in own]
        carrying = [offset for offset in found if offset is not None]
        if not carrying or VOID in own:
            # Nothing is known yet about a source that no batch has read.
            continue
        policy = each.watermark.policy
        left_out = policy.leaves_out if isinstance(policy, Carried) and not each.watermark.partitions else _nobody
        watermarks = [
            {path: watermarks.get(path, MIN) for path in leaves(offset.offsets) if not left_out(path)}
            for offset, watermarks in ((offset, leaves(offset.watermarks)) for offset in carrying)
        ]
        if each.watermark.partitions:
            columns = len(each.watermark.by)
            for path, watermark in (item for of_source in watermarks for item in of_source.items()):
                yield each.prefix + substream_of(path, columns), watermark
        else:
            # Where nobody who tells has written yet, others' watermarks say nothing of the rows to come.
            complete = len(carrying) == len(own) and all(leaves(offset.offsets) for offset in carrying)
            least = least_carried(mark for of_source in watermarks for mark in of_source.values()) if complete else None
            for name in [progress.id for progress in tracker.progress()]:
                if name.startswith(each.prefix):
                    yield name, least


def waiting(inputs: Sequence[Input], found: Iterable[tuple[str, int | None]]) -> set[str]:
    """The prefixes of the inputs that wait for a watermark which nobody tells, and have no other policy.

    >>> from sparkjet.plan.inputs import Input, WatermarkSettings
    >>> from sparkjet.time import carried as policy
    >>> one, other = (Input(prefix, WatermarkSettings("ts", policy()), sources=1) for prefix in ("1/", "2/"))
    >>> waiting([one, other], [("1/a", 7), ("1/b", None), ("2/", MIN)])
    {'1/'}
    """
    silent = [name for name, watermark in found if watermark is None]
    policies = [(each.prefix, each.watermark.policy) for each in inputs]
    alone = [prefix for prefix, policy in policies if isinstance(policy, Carried) and policy.otherwise is None]
    return {prefix for prefix in alone if any(name.startswith(prefix) for name in silent)}


def _nobody(_: str) -> bool:
    return False


def announced(inputs: Sequence[Input], offsets: Sequence[str]) -> Iterator[str]:
    """Full names of the substreams in the offsets of a batch, with or without rows.

    >>> from sparkjet.plan.inputs import Input, WatermarkSettings
    >>> from sparkjet.time import limiting_lag
    >>> one = Input("", WatermarkSettings("ts", limiting_lag(0), by=("topic", "partition"), partitions=True), sources=1)
    >>> list(announced([one], ['{"clicks": {"0": 5, "1": 0}}']))
    ['clicks/0', 'clicks/1']
    """
    for each, own in shared_out(inputs, offsets):
        if each.watermark.partitions:
            for offset in own:
                for name in _partitions(offset, columns=len(each.watermark.by)):
                    yield each.prefix + name


def caught_up_by(
    inputs: Sequence[Input], progress: dict[str, Any], substreams: Sequence[SubstreamProgress], *, between_batches: bool
) -> dict[str, bool | None]:
    """The same from Spark's newest progress, as far as it is still valid."""
    idle = {substream.id: substream.idle for substream in substreams}
    answers = caught_up(inputs, progress["sources"], list(idle))
    if between_batches:
        return answers
    return {name: None if answer is None else idle[name] for name, answer in answers.items()}


def shared_out(inputs: Sequence[Input], offsets: Sequence[str]) -> Iterator[tuple[Input, Sequence[str]]]:
    """Each input with the offsets of its sources."""
    if len(offsets) not in {1, sum(each.sources for each in inputs)}:
        # Some of several sources are read by two inputs: which offset belongs to which is unknown.
        return
    position = 0
    for each in inputs:
        # A source that several inputs read appears once in the batch.
        yield each, offsets if len(offsets) == 1 else offsets[position : position + each.sources]
        position += each.sources


def _positions(offset: object) -> dict[str, Any]:
    """The positions in an offset, by the paths of their partitions."""
    carrying = CarryingOffset.found_in(offset)
    if carrying is not None:
        return leaves(carrying.offsets)
    # What is said of alignment names queues too.
    return leaves(offset["queues"] if isinstance(offset, Mapping) and is_of_queues(offset) else offset)


def substream_of(path: str, columns: int) -> str:
    """The name of the substream that a partition is, given the number of its columns."""
    return path if columns > 1 else path.rpartition("/")[2]


def _partitions(offset: str, *, columns: int) -> Iterator[str]:
    received = QueueOffset.found_in(offset)
    if received is not None:
        yield from received.queues
    elif offset != VOID:
        for path in _positions(json.loads(offset)):
            yield substream_of(path, columns)


def _all(answers: Any) -> bool | None:
    found = list(answers)
    if False in found:
        return False
    return None if None in found else True


def _at_end(name: str, end: object, latest: object) -> bool | None:
    if end is None or latest is None:
        return None
    ends, latests = _positions(end), _positions(latest)
    paths = ends.keys() | latests.keys()
    own = {path for path in paths if path == name or path.endswith(f"/{name}")}
    return all(ends.get(path) == latests.get(path) for path in own or paths)
