#!/usr/bin/env bash
# Runs every static check, all of them even when one fails, and fails if any did.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

bin=.venv/bin
status=0

check() {
    printf '== %s\n' "$*"
    "$@" || status=1
}

check "$bin/ruff" format --check .
check "$bin/ruff" check .
check "$bin/mypy"
# The box code is no part of the installed client, so import-linter must be told where it lies.
check env PYTHONPATH=remote "$bin/lint-imports"
check "$bin/python" scripts/code_figures.py

if [ "$status" -ne 0 ]; then
    echo "lint: failed, see above" >&2
fi
exit "$status"
