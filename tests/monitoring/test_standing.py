"""Who is behind whom: as the definition says, whatever substreams there are."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sparkjet.engine.progress_report import SubstreamReport
from sparkjet.monitoring.standing import FURTHEST, standing_of
from tests.monitoring.reports import substream

one = st.builds(
    substream,
    st.none() | st.integers(-3, 3),
    idle=st.booleans(),
    holds=st.booleans(),
    held=st.sampled_from([(None, None), (7, "a")]),
)
some = st.dictionaries(st.text("abcdefgh", min_size=1, max_size=3), one, max_size=60)


def waited_for(each: SubstreamReport) -> bool:
    return not each.idle and (each.watermark is not None or each.holds_watermark)


@settings(max_examples=30)
@given(some)
def test_it_is_what_the_definition_says(known: dict[str, SubstreamReport]) -> None:
    found = standing_of(known)

    def order(name: str) -> tuple[bool, bool, int, str]:
        each = known[name]
        return not waited_for(each), each.watermark is not None, each.watermark or 0, name

    assert found.named == sorted(known, key=order)[:FURTHEST]
    others = [each for name, each in known.items() if name not in found.named]
    counts = len(others), sum(each.holds_watermark for each in others), sum(each.idle for each in others)
    assert (found.others.count, found.others.holding, found.others.idle) == counts
    assert found.others.held == sum(each.held_back is not None for each in others)
    with_rows = [each for each in others if each.watermark is not None]
    least = min(((each.idle, each.watermark) for each in with_rows), default=None)
    furthest = found.others.furthest
    assert least == (None if furthest is None else (furthest.idle, furthest.watermark))
    waited = [each for each in known.values() if waited_for(each)]
    assert (found.waited, found.empty) == (len(waited), sum(each.watermark is None for each in waited))
    times = sorted(each.watermark for each in waited if each.watermark is not None)
    levels = sorted(set(times))
    level = len(levels) < 2
    assert found.last == (0 if level else times.count(levels[0]))
    assert found.behind == (0 if level else levels[1] - levels[0])
