"""The format ``sparkjet-state``: what an operator of a query holds, to be read."""
