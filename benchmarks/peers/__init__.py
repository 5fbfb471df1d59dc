"""One module an engine; each runs one work in a process of its own and prints one report."""
