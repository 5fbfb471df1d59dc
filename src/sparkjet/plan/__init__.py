"""The description of a query: its inputs, transformations, stages and outputs; nothing in it runs."""
