"""python -m auditcore: the command line."""

import sys

from auditcore.cli import main

sys.exit(main())
