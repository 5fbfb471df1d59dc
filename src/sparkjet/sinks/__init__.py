"""Sinks: one file a system, one protocol for all."""
