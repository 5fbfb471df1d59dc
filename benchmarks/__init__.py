"""The throughput of sparkjet next to its peers, on the same generated input."""
