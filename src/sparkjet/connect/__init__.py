"""What a source and a sink of one system share."""
