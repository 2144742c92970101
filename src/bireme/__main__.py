"""``python -m bireme`` is the ``bireme`` command."""

import sys

from bireme.cli import main

sys.exit(main())
