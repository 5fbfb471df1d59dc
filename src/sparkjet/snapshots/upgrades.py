"""Upgrades of records: from each format to the next one, in plain JSON."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

OLDEST = 2
"""The oldest format that can be upgraded; format 1 was in use for a day, before there were homes to keep."""


def upgraded(record: dict[str, Any], number: int, to: int) -> dict[str, Any]:
    """A record of an older format in a newer one."""
    try:
        for step in range(number, to):
            record = {**_STEPS[step](record), "format": step + 1}
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        message = f"an entry of format {number} is missing or of another type ({error!r})"
        raise msgspec.ValidationError(message) from error
    return record


def _from_2(record: dict[str, Any]) -> dict[str, Any]:
    """Aggregations were called stages, windows did not name their kind, inputs and substreams had no frontiers."""
    stages = record["stages"]
    return {
        **{name: value for name, value in record.items() if name != "stages"},
        "fingerprint": {
            _aggregation(name): each if name == "inputs" else {**each, "reads": _aggregation(each["reads"])}
            for name, each in record["fingerprint"].items()
        },
        "aggregations": {
            _aggregation(name): {
                **state,
                "settings": {"window": "session" if "gap" in state["settings"] else "sliding", **state["settings"]},
            }
            for name, state in stages.items()
        },
        "watermarks": _inputs_from_2(record["watermarks"]),
    }


def _aggregation(stage: str | None) -> str | None:
    """The name of an aggregation in format 3; None, as is, for one that reads the input."""
    return stage and re.sub(r"^stage(?=\d+$)", "aggregation", stage)


def _inputs_from_2(watermarks: dict[str, Any]) -> dict[str, Any]:
    old = watermarks["coalescer"]
    # A query's inputs never ended (`done`): its coalescer had a place for each.
    members = {
        str(place): {"watermark": watermark, "idle": idle}
        for place, (watermark, idle) in enumerate(zip(old["watermarks"], old["idle"], strict=True))
    }
    return {
        "inputs": {prefix: _substreams_from_2(each) for prefix, each in watermarks["inputs"].items()},
        "coalescer": {
            "inputs": len(members),
            "frontier": {"members": members, "top": old["top"], "quiet": old["all_idle"]},
            "emitted": old["emitted"],
            "idle_pending": old["idle_pending"],
        },
        "now": watermarks["now"],
    }


def _substreams_from_2(tracker: dict[str, Any]) -> dict[str, Any]:
    substreams, output = tracker["substreams"], tracker["output"]
    return {
        "substreams": {
            name: {part: value for part, value in each.items() if part not in {"watermark", "idle"}}
            for name, each in substreams.items()
        },
        "frontier": {
            "members": {
                name: {"watermark": each["watermark"], "idle": each["idle"]} for name, each in substreams.items()
            },
            "top": output["top"],
            "quiet": output["idle"],
        },
        "retired": tracker["retired"],
        "emitted": output["emitted"],
        "started": tracker["started"],
        "now": tracker["now"],
    }


def _from_3(record: dict[str, Any]) -> dict[str, Any]:
    """Only aggregations had state."""
    return {
        **{name: value for name, value in record.items() if name != "aggregations"},
        "fingerprint": {
            _stage(name): each if name == "inputs" else {**each, "reads": _stage(each["reads"])}
            for name, each in record["fingerprint"].items()
        },
        "stages": {_stage(name): state for name, state in record["aggregations"].items()},
    }


def _stage(aggregation: str | None) -> str | None:
    """Name of an aggregation among all stages; None, as is, for one that reads the input."""
    return aggregation and re.sub(r"^aggregation(?=\d+$)", "stage", aggregation)


def _from_4(record: dict[str, Any]) -> dict[str, Any]:
    """No source acknowledged messages."""
    return {**record, "queues": {}}


_STEPS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {2: _from_2, 3: _from_3, 4: _from_4}
