"""Fixtures for every tier; each starts its servers when a test first asks for them."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

# A busy machine is slow, and no test is about that. `--hypothesis-profile=long` looks further.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("pelops", PATIENT, max_examples=40)
settings.register_profile("long", PATIENT, max_examples=500)
settings.load_profile("pelops")

# Started in the background of a shell, a test run inherits an ignored SIGINT and would hand it on
# to the programs that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = [
    "tests.redis_fixtures",
    "tests.cluster_fixtures",
    "tests.java_fixtures",
    "tests.spark_fixtures",
    "tests.rerun",
    "tests.scheduling",
]
