"""What a query is: its inputs, transformations, windowed aggregations and outputs, as pure description."""
