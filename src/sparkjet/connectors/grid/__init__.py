"""Maps and journals of a grid (extra ``grid``), as sources and sinks."""
