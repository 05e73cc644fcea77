"""`python -m pipeline.cli`: same as the `grpoflow` command."""

import sys

from pipeline.cli import main

sys.exit(main())
