"""Connectors: for each system outside, its sources and sinks, and what they share."""
