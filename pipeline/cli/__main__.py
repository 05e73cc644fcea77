"""`python -m pipeline.cli`: grpoflow from a checkout."""

import sys

from pipeline.cli import main

sys.exit(main())
