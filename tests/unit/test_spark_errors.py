"""What a run says where Spark fails for want of memory."""

from __future__ import annotations

from pyspark.errors import PySparkException

from pelops.pipeline.errors import SparkLost
from pelops.pipeline.spark_errors import explain_failure


def test_a_full_heap_is_reported_with_what_to_do() -> None:
    java = "Job aborted: Task 3 failed: java.lang.OutOfMemoryError: Java heap space"
    found = explain_failure(PySparkException(java), "/archive")
    assert isinstance(found, SparkLost)
    assert str(found).startswith("Java's heap is full. Give the run more memory: in Kubernetes by")
    assert "PELOPS_AUDIT_MEMORY_MIB" in str(found)
