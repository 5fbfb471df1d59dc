"""Tools without a running query: replays of watermark policies, and plots of them."""
