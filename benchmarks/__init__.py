"""The throughput of sparkjet and its peers on the same generated input."""
