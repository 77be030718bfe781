"""The Spark data source needs pyspark, pyarrow and redis, and no other package of Pelops' parts."""

import subprocess
import sys

import pytest

pytest.importorskip("pyspark")
PROGRAM = """
import importlib, pkgutil, sys

MISSING = {"aiohttp", "kopf", "kubernetes", "prometheus_client", "pydantic", "yaml"}

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in MISSING:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing())
import pyspark_redis_streams as package

for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    importlib.import_module(module.name)
print(*sorted(name for name in sys.modules if name.startswith("pelops.")))
"""


def test_the_data_source_is_imported_without_what_the_operator_needs() -> None:
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    parts = {name.split(".")[1] for name in done.stdout.split()}
    assert parts == {"domain", "errors", "redis_core"}
