"""The SparkApplication of a StreamAudit, submitted with executors: they do the work."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pyspark
import pytest

from local_cluster.java import require_java
from pelops.kube.audit_spark import MAIN_FILE, build_application
from pelops.pipeline.archive.records import WindowPhase
from tests.audit_facts import ACCESS, a_plan, after, an_audit
from tests.pipeline.audited import Audited
from tests.pipeline.executors import event_options, read_events
from tests.pipeline.test_jobs import MOST_JOBS

pytestmark = pytest.mark.full
ROOT = Path(__file__).parents[2]
RUN_S = 800
# Of pods, and of an image: here two executors are processes of this machine.
OF_KUBERNETES = "spark.kubernetes."


def test_the_tasks_of_a_submitted_audit_run_on_its_executors(
    audited: Audited, spark_jars: None, tmp_path: Path
) -> None:
    backend = {"type": "SparkApplication", "sparkOperator": "Apache", "executors": 2}
    audit = an_audit(backend=backend)
    spec = build_application(audit, a_plan(audit), ACCESS, image="pipeline", due=after())["spec"]
    events = tmp_path / "events"
    events.mkdir()
    chosen = {
        name: v for name, v in spec["sparkConf"].items() if not name.startswith(OF_KUBERNETES)
    }
    options = chosen | event_options(events) | {"spark.driver.memory": "1g"}
    audited.create_group()
    audited.add(5000)
    audited.acknowledge(*audited.deliver(4000)[:3900])
    main_file = ROOT / "tools" / "pipeline_image" / MAIN_FILE.rpartition("/")[2]
    target = {"stream": audited.stream, "group": audited.keys.group}
    spark = Path(pyspark.__file__).parent
    ended = subprocess.run(
        [
            str(spark / "bin" / "spark-submit"), "--master", "local-cluster[2,1,1024]",
            *(word for name, value in options.items() for word in ("--conf", f"{name}={value}")),
            str(main_file), *spec["driverArgs"],
        ],
        env=os.environ
        | {
            "SPARK_HOME": str(spark),
            "JAVA_HOME": str(require_java()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYTHONPATH": str(ROOT / "operator"),
            "PELOPS_REDIS_URL": f"redis://127.0.0.1:{audited.port}/0",
            "PELOPS_AUDIT_ARCHIVE": str(audited.archive),
            "PELOPS_AUDIT_GROUPS": json.dumps([target]),
        },
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=RUN_S, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout[-3000:]
    assert "on local-cluster[2,1,1024]: " in ended.stdout
    assert len(audited.windows(WindowPhase.AUDITED)) == 2  # of the stream, and of its group
    assert len(audited.statuses(0)) == 5000
    done = read_events(events)
    assert len(done.executors) == 2 and "driver" not in done.executors
    assert 0 < done.jobs <= MOST_JOBS
