#!/usr/bin/env bash
# Builds .venv-services: the real servers and the vendors' own clients, against which adapters are tested. Does nothing
# when the stamp says that nothing has changed.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
unset PYTHONPATH PYTHONHOME PIP_USER PIP_TARGET PIP_PREFIX

base=.venv
venv=.venv-services
stamp=$venv/.rgt-setup
log=$venv/setup.log
locks=(requirements/services.lock requirements/services_clients.lock)

say() { printf 'services: %s\n' "$*" >&2; }

wanted=$(cat -- "${locks[@]}" scripts/services.sh "$base/.rgt-setup" | sha256sum | cut -d ' ' -f 1)
if [ "$(cat -- "$stamp" 2>/dev/null)" = "$wanted" ]; then
    exit 0
fi
say "building $venv (about 800 MB)"
rm -rf -- "$venv"
"$base/bin/python" -m venv -- "$venv"
# The locks are complete, so nothing has to be resolved, and Lambda's client need not agree with SkyPilot about click. uv
# takes a sixth of pip's time, but does not read pip's settings: pip is tried where it fails.
options=(--no-deps --require-hashes "${locks[@]/#/-r}")
if ! "$base/bin/uv" pip install --python "$venv/bin/python" --no-progress "${options[@]}" >"$log" 2>&1 </dev/null &&
    ! "$venv/bin/python" -m pip --disable-pip-version-check --no-input install --progress-bar off \
        "${options[@]}" >>"$log" 2>&1 </dev/null; then
    grep -E 'ERROR|rror:' -- "$log" | tail -n 4 | cut -c 1-300 >&2 || true
    say "FAILED, whole log: $PWD/$log; run make services again"
    exit 1
fi
printf '%s\n' "$wanted" >"$stamp"
