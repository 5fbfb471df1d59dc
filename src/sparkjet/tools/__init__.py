"""Tools beside a running query: replays of watermark policies, and pictures of them."""
