"""Puts Java packages, and what they need, among Spark's jars or into a directory:
fetch_jars.py GROUP:NAME:VERSION,... [DIRECTORY]

Spark's own resolver fetches them, from where it always does.
"""

import os
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pyspark
from pyspark.sql import SparkSession

# hadoop-aws asks for the whole SDK of AWS, 0.7 GB, of which it uses these; by its own version.
_SDK = "software.amazon.awssdk"
_SDK_OF_HADOOP = {"3.5.0": "2.35.4"}
_SDK_PARTS = ("s3", "s3-transfer-manager", "sts")
_HADOOP_AWS = "org.apache.hadoop:hadoop-aws:"
# Spark has these itself, and newer.
_OF_SPARK = (
    "commons-codec:commons-codec",
    "commons-logging:commons-logging",
    "io.netty:*",
    "org.apache.httpcomponents:httpclient",
    "org.apache.httpcomponents:httpcore",
    "org.slf4j:slf4j-api",
)
# Delta Lake asks for these for catalogs and for tables that a catalog commits to.
_OF_CATALOGS = ("io.delta:delta-kernel-*", "io.unitycatalog:*")


def main(packages: str, directory: str | None = None) -> None:
    """Fetch and copy, by default to Spark's own jars; nothing for no packages."""
    if not packages:
        return
    target = Path(directory) if directory else Path(pyspark.__path__[0], "jars")
    target.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as cache:
        # What Maven has half of in the home directory would be taken for whole.
        os.environ["SPARK_SUBMIT_OPTS"] = f"-Duser.home={cache}"
        builder = SparkSession.builder.master("local[1]")
        for name, value in _options(packages, cache).items():
            builder = builder.config(name, value)
        builder.getOrCreate().stop()
        for jar in sorted(Path(cache, "jars").glob("*.jar")):
            print(shutil.copy(jar, target))


def _options(packages: str, cache: str) -> dict[str, str]:
    sdk = _sdk_parts(packages)
    return {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.jars.ivy": cache,
        "spark.jars.packages": ",".join([packages, *sdk]),
        "spark.jars.excludes": ",".join(
            [*_OF_SPARK, *_OF_CATALOGS, *([f"{_SDK}:bundle"] if sdk else [])]
        ),
    }


def _sdk_parts(packages: str) -> list[str]:
    """What stands for the whole SDK; nothing where its version is not known."""
    versions = [
        _SDK_OF_HADOOP.get(one.removeprefix(_HADOOP_AWS))
        for one in packages.split(",")
        if one.startswith(_HADOOP_AWS)
    ]
    return [f"{_SDK}:{part}:{sdk}" for sdk in versions if sdk for part in _SDK_PARTS]


if __name__ == "__main__":
    main(*sys.argv[1:])
