#!/usr/bin/env bash
# Makes .venv with exactly the pinned packages. Runs again only when these change.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}

fail() { printf '%s\n' "$1" >&2; exit 1; }

command -v "$python" >/dev/null || fail "Python is missing: install Python 3.11 or later, or name one with PYTHON=..."
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  fail "$("$python" --version) is too old: Pelops needs 3.11 or later; name another with PYTHON=..."

if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
  # Debian keeps these in a package of their own.
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null ||
    fail "Python's venv module is missing: install it (Debian: apt-get install python3-venv)"
  echo "installing python3-venv ..."
  apt-get update -qq && apt-get install -y -qq python3-venv >/dev/null
fi

echo "installing the pinned packages into .venv (half a minute the first time) ..."
[ -x .venv/bin/python ] || "$python" -m venv .venv
# What is built here is built with these, not with what pip would fetch without a hash.
.venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/build.txt
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --require-hashes -r requirements/dev.txt
# All from this tree. The last one goes last: while pip replaces it, the others still lead to operator/.
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation \
  -e packages/pelops-core -e packages/pyspark-redis-streams -e .
touch .venv/.installed
