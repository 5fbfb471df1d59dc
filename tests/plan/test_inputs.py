"""Substreams of several inputs that are known before the first row."""

from __future__ import annotations

import pytest

from sparkjet.plan.inputs import MOST_FIXED, Input, WatermarkSettings, common_grid, fixed_substreams, several_substreams
from sparkjet.time import limiting_lag

ALONE = WatermarkSettings("ts", limiting_lag("1 second"))
BY = WatermarkSettings("ts", limiting_lag("1 second"), by=("feed",), substreams=("a", "b"))


def inputs(*settings: WatermarkSettings) -> list[Input]:
    """Inputs of a union."""
    return [Input(f"{number}/", each, 1) for number, each in enumerate(settings, 1)]


def test_streams_that_have_one_substream_each_are_all_there_will_be() -> None:
    assert fixed_substreams(inputs(ALONE, ALONE, ALONE)) == ("1/all", "2/all", "3/all")


@pytest.mark.parametrize("settings", [(ALONE, BY), (BY,), (ALONE,) * (MOST_FIXED + 1)], ids=["some", "one", "many"])
def test_others_can_come_or_there_are_many(settings: tuple[WatermarkSettings, ...]) -> None:
    assert several_substreams(inputs(*settings))
    assert fixed_substreams(inputs(*settings)) == ()


def test_the_common_grid_has_the_ends_of_all() -> None:
    assert common_grid([(60, 0), (90, 30)]) == (30, 0)
