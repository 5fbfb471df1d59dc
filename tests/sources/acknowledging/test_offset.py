"""The offset of an acknowledging source, as Spark writes it down and gives it back."""

from __future__ import annotations

import json

import pytest

from sparkjet.sources.acknowledging.offset import QueueOffset


def test_it_survives_spark() -> None:
    offset = QueueOffset({"orders": 17, "a/b": 3}, "/run/receiver")
    written = json.dumps(offset.to_spark())
    assert QueueOffset.found_in(written) == QueueOffset.of(json.loads(written)) == offset
    assert offset.position == 20


@pytest.mark.parametrize("other", ["-", "17", "null", '{"clicks": {"0": 5}}', '{"logOffset": 3}', '{"queues": {}}'])
def test_offsets_of_other_sources_are_distinguished(other: str) -> None:
    assert QueueOffset.found_in(other) is None
