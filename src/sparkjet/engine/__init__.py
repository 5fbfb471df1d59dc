"""The engine: one micro-batch is one epoch, one epoch is one record."""
