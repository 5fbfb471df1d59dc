from __future__ import annotations

import pytest

from tests.windows.model import Batch, Event
from tests.windows.timeline import timeline


def test_what_is_drawn_is_read_by_its_columns() -> None:
    drawn = timeline("""
        time      -10  -5   0         10
        a           1       2  -3
        null                4 5
        watermark            |
        a           [==1==) [=-2=)

        watermark end
        late 3
    """)
    events = [Event("a", -8, 1), Event("a", 0, 2), Event("a", 3, -3), Event(None, 0, 4), Event(None, 2, 5)]
    assert drawn.batches == [Batch(events, 1), Batch([], None)]
    assert drawn.events == events
    assert drawn.rows == [[("a", -8, -2, (1,)), ("a", 0, 5, (-2,))], []]
    assert drawn.late == 3


@pytest.mark.parametrize(
    ("drawing", "message"),
    [
        ("a 1", "begins with its ruler"),
        ("time 0  5\na    1\nwatermark |", "not even"),
        ("time 0\na    1", "without its watermark"),
        ("time       0\nwatermark  |\nwatermark  |", "two watermarks"),
        ("time       0\na          1x\nwatermark  |", "cannot read"),
        ("time       0\na          [==)\nwatermark  |", "cannot read"),
    ],
)
def test_a_drawing_that_cannot_be_read_is_refused(drawing: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        timeline(drawing)
