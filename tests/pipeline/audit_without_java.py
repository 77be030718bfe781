"""The command of the pipeline; the last line shows whether it has imported PySpark."""

from __future__ import annotations

import sys

from pelops.pipeline.main import main

if __name__ == "__main__":
    code = main(sys.argv[1:])
    is_imported = any(name.partition(".")[0] == "pyspark" for name in sys.modules)
    print(f"pyspark was {'imported' if is_imported else 'not imported'}")
    sys.exit(code)
