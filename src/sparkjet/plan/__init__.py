"""A query as pure description: its inputs, transformations, stages and outputs."""
