"""Maps of a grid as DataFrames."""
