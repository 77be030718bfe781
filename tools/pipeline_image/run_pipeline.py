"""The main file of spark-submit, since that takes a file and no module."""

import sys

from pelops.pipeline.main import main

sys.exit(main())
