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

echo "lock: requirements/dev.lock" >&2
.venv/bin/pip-compile "${common[@]}" --generate-hashes "$@" \
    --output-file=requirements/dev.lock requirements/dev.in

plain=$(mktemp requirements/.plain.lock.XXXXXX)
trap 'rm -f -- "$plain"' EXIT
for name in torch frameworks; do
    echo "lock: requirements/$name.lock" >&2
    .venv/bin/pip-compile "${common[@]}" --generate-hashes "$@" \
        --output-file="requirements/$name.lock" "requirements/$name.in"
    # torch alone has another build, with another hash, per platform and index: torch.in pins its version. All that it
    # needs everywhere stays here with hashes.
    awk '/^[A-Za-z]/ { torch = /^torch==/ } !torch' "requirements/$name.lock" >"$plain"
    cat -- "$plain" >"requirements/$name.lock"
done

# uv, because pip-compile does not come to an end with these.
echo "lock: requirements/services.lock" >&2
.venv/bin/uv pip compile --quiet --generate-hashes --no-emit-index-url --python-version 3.11 \
    --custom-compile-command "make lock" "$@" \
    --output-file requirements/services.lock requirements/services.in
