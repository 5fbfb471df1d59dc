"""Tools without a running query: replays of watermark policies, plots of them, and which lag loses how much."""

from sparkjet.tools.lag import LagReport, Loss, lag_for

__all__ = ["LagReport", "Loss", "lag_for"]
