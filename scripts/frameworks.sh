#!/usr/bin/env bash
# Builds .venv-frameworks: the libraries that rgt_train has bridges to, on top of what .venv holds. Tests that need one
# of them are skipped without it. Does nothing when the stamp says that nothing has changed.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
unset PYTHONPATH PYTHONHOME PIP_USER PIP_TARGET PIP_PREFIX

base=.venv
venv=.venv-frameworks
stamp=$venv/.rgt-setup
log=$venv/setup.log

say() { printf 'frameworks: %s\n' "$*" >&2; }

wanted=$(cat -- requirements/frameworks.lock scripts/frameworks.sh "$base/.rgt-setup" | sha256sum | cut -d ' ' -f 1)
if [ "$(cat -- "$stamp" 2>/dev/null)" = "$wanted" ]; then
    exit 0
fi
say "building $venv (about 400 MB)"
rm -rf -- "$venv"
"$base/bin/python" -m venv -- "$venv"
# What .venv has counts as installed: torch is not fetched a second time. The lock is complete but for torch, whose
# build differs per platform, so nothing has to be resolved.
"$base/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
    >"$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/base.pth"
if ! "$venv/bin/python" -m pip --disable-pip-version-check --no-input install --progress-bar off \
    --no-deps --require-hashes -r requirements/frameworks.lock >"$log" 2>&1 </dev/null; then
    grep -E 'ERROR|rror:' -- "$log" | tail -n 4 | cut -c 1-300 >&2 || true
    say "FAILED, whole log: $PWD/$log; run make frameworks again"
    exit 1
fi
printf '%s\n' "$wanted" >"$stamp"
