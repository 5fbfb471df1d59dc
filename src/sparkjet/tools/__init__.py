"""Tools without a running query: replays of policies, plots of them, which lag loses how much, what is complete."""

from sparkjet.tools.completeness import Completeness, Writer, complete_until
from sparkjet.tools.lag import LagReport, Loss, lag_for
from sparkjet.tools.late_rows import recommend

__all__ = ["Completeness", "LagReport", "Loss", "Writer", "complete_until", "lag_for", "recommend"]
