"""Parts of records that tests of records do not care about."""

from __future__ import annotations

from sparkjet.time import InputTracker, SubstreamTracker, limiting_lag

NO_WATERMARKS = InputTracker({"": SubstreamTracker(limiting_lag(0))}).snapshot()
"""The watermarks of a query that has seen nothing."""
