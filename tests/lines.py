"""Lines of Spark on which a test has nothing to show; `make test-sparks` runs them all."""

from __future__ import annotations

import pytest

from sparkjet.spark_line import LINE

needs_unions_in_place = pytest.mark.skipif(LINE < (4, 1), reason="Spark 4.0 shuffles what it has put together")
needs_python_aggregates = pytest.mark.skipif(LINE < (4, 1), reason="Spark 4.0 has no functions over Arrow's arrays")
needs_sketches = pytest.mark.skipif(LINE < (4, 1), reason="Spark 4.0 has no KLL sketches")
needs_indices = pytest.mark.skipif(LINE < (4, 2), reason="zipWithIndex is of Spark 4.2")
needs_state_processors = pytest.mark.skipif(LINE < (4, 1), reason="Spark 4.0 has transformWithState for pandas only")
