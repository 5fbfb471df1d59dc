"""Worked cases in Markdown, run against sparkjet: ``python -m tests.conformance FILE…``.

The runner reads the tables under headings such as ``## SW. Sliding windows``; each row of a known group is one case,
which passes, fails, or is skipped with a reason. The runner has no knowledge of particular cases: all parameters are
in the row.
"""

from tests.conformance.cases import Case, read_cases
from tests.conformance.runner import GROUPS, run_case, run_cases
from tests.conformance.verdicts import Outcome, Verdict

__all__ = ["GROUPS", "Case", "Outcome", "Verdict", "read_cases", "run_case", "run_cases"]
