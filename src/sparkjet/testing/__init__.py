"""Tools to test queries and extensions with: aggregate laws, and the worked cases as a program."""

from sparkjet.testing.laws import check_aggregate

__all__ = ["check_aggregate"]
