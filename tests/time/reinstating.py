"""A watermark that an older run has saved for a substream: Jet restores them one by one, sparkjet all at once."""

from __future__ import annotations

from sparkjet.time import SubstreamTracker


def reinstate(tracker: SubstreamTracker, substream: str, watermark: int) -> None:
    """Give a substream a watermark; the minimum of all then counts as emitted, whatever a throttle had held back."""
    tracker._check_known(substream)
    tracker._frontier.insert(substream, watermark)
    tracker.force(min(each.watermark for each in tracker._frontier.members.values()))
