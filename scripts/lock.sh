#!/usr/bin/env bash
# Resolves requirements/*.in into requirements/*.lock. Extra arguments go to pip-compile (--upgrade).
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

# Relative names only, so that the headers of the locks say nothing about this machine.
common=(--quiet --allow-unsafe --strip-extras --no-emit-index-url --no-emit-trusted-host --no-emit-find-links
    --no-emit-options)

echo "lock: requirements/base.lock" >&2
.venv/bin/pip-compile "${common[@]}" --generate-hashes "$@" \
    --output-file=requirements/base.lock requirements/base.in

echo "lock: requirements/torch.lock" >&2
.venv/bin/pip-compile "${common[@]}" "$@" --output-file=requirements/torch.lock requirements/torch.in

echo "lock: requirements/frameworks.lock" >&2
.venv/bin/pip-compile "${common[@]}" "$@" --output-file=requirements/frameworks.lock requirements/frameworks.in

# A local version (2.4.0+cpu) exists on one index only: the plain version accepts every build of it.
plain=$(mktemp requirements/.plain.lock.XXXXXX)
trap 'rm -f -- "$plain"' EXIT
for lock in requirements/torch.lock requirements/frameworks.lock; do
    sed -E 's/^([A-Za-z0-9_.-]+==[^+[:space:]]+)\+[^[:space:]]+/\1/' "$lock" >"$plain"
    cat -- "$plain" >"$lock"
done
