"""One module per engine; each runs one work in a separate process and prints one report."""
