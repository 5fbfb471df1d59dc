"""The user-facing objects: streams, results, writers and queries."""
