"""Fixtures for every tier; each starts its servers when a test first asks for them."""

from __future__ import annotations

pytest_plugins = ["tests.redis_fixtures", "tests.cluster_fixtures"]
