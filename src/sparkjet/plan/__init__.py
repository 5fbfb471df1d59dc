"""What a query is: its inputs, transformations, stages and outputs, as pure description."""
