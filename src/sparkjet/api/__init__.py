"""What users hold: streams, results, writers and queries."""
