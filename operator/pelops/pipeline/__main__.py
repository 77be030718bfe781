"""`python -m pelops.pipeline`."""

import sys

from pelops.pipeline.main import main

if __name__ == "__main__":
    sys.exit(main())
