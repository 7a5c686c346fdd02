#!/usr/bin/env bash
# Puts a Python of every version that the agent supports where the tests look for it: .interpreters/python3.8 and so on,
# links to what this machine has (PATH, pyenv, uv), and what uv, one of the developer's tools, can fetch for the rest.
# Quick when nothing is missing. A version that cannot be had is named; with CI=true that is a failure, elsewhere its
# tests are skipped.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

minors=(8 9 10 11 12 13)
folder=.interpreters

# An interpreter counts when it runs, and is the version that it is taken for (a shim of pyenv may be neither).
is_version() {
    [ -x "$2" ] && [ "$("$2" -I -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" = "3.$1" ]
}

candidates() {
    command -v "python3.$1" || true
    ls -d "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3."$1".*/bin/python 2>/dev/null || true
    ls -d "${UV_PYTHON_INSTALL_DIR:-$HOME/.local/share/uv/python}"/cpython-3."$1".*/bin/python3."$1" 2>/dev/null || true
}

put() {
    local path
    while read -r path; do
        if is_version "$1" "$path"; then
            # The real file: a shim asks the directory that it is called in which version to be.
            ln -sfn -- "$("$path" -I -c 'import os, sys; print(os.path.realpath(sys.executable))')" "$folder/python3.$1"
            return 0
        fi
    done < <(candidates "$1")
    return 1
}

absent() {
    local minor
    for minor in "${minors[@]}"; do
        is_version "$minor" "$folder/python3.$minor" || put "$minor" || printf '3.%s\n' "$minor"
    done
}

mkdir -p -- "$folder"
missing=$(absent)
if [ -n "$missing" ] && uv=$(command -v .venv/bin/uv || command -v uv); then
    echo "interpreters: fetching Python" $missing >&2
    # shellcheck disable=SC2086 # several versions
    "$uv" --quiet python install --no-bin $missing >&2 || true
    missing=$(absent)
fi
if [ -n "$missing" ]; then
    echo "interpreters: no Python" $missing "here: the tests of the agent under it cannot run" >&2
    echo "interpreters: install them with uv or pyenv, or put them on the PATH as python3.N" >&2
    [ "${CI-}" != true ]
fi
