"""``python -m sparkjet``: see :mod:`sparkjet.cli`."""

import sys

from sparkjet.cli import main

sys.exit(main())
