"""Operators without windows: what they keep between epochs is by key, or by row."""
