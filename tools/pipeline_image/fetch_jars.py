"""Puts Java packages, and what they need, among Spark's jars: fetch_jars.py GROUP:NAME:VERSION,...

Spark's own resolver fetches them, from where it always does.
"""

import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pyspark
from pyspark.sql import SparkSession


def main(packages: str) -> None:
    """Fetch and copy; nothing for no packages."""
    if not packages:
        return
    with TemporaryDirectory() as cache:
        session = (
            SparkSession.builder.master("local[1]")
            .config("spark.ui.enabled", "false")
            .config("spark.jars.packages", packages)
            .config("spark.jars.ivy", cache)
            .getOrCreate()
        )
        session.stop()
        for jar in sorted(Path(cache, "jars").glob("*.jar")):
            print(shutil.copy(jar, Path(pyspark.__path__[0], "jars")))


if __name__ == "__main__":
    main(sys.argv[1])
