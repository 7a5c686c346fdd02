#!/usr/bin/env bash
# setup.sh [demo|all]: builds .venv from the lock files, installs the project into it, and adds the missing system parts.
# demo: only what `make demo` needs; all (the default): the developer's tools and the parts that the tests need, too.
# Does nothing, in a fraction of a second, when the stamp in .venv says that nothing has changed.
# PYTHON=/path/to/python3.12 chooses the interpreter. pip's own settings (PIP_INDEX_URL, pip.conf) apply.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
unset PYTHONPATH PYTHONHOME PIP_USER PIP_TARGET PIP_PREFIX

mode=${1:-all}
venv=.venv
stamp=$venv/.rgt-setup
log=$venv/setup.log
version_of='import sys; print("%d.%d.%d" % sys.version_info[:3])'

say() { printf 'setup: %s\n' "$*" >&2; }

fail() {
    say "$*"
    exit 1
}

digest() {
    if command -v sha256sum >/dev/null 2>&1; then
        cat -- "$@" | sha256sum | cut -d ' ' -f 1
    else
        cat -- "$@" | shasum -a 256 | cut -d ' ' -f 1
    fi
}

# The stamp's lines. It is written when the packages are complete, so that an interrupted build leaves none. Only a
# set-up of everything writes `tools` and `missing-all`; what is set up for all is set up for the demo.
line_root() { printf 'root=%s\n' "$PWD"; }
line_locks() { printf 'locks=%s\n' "$(digest requirements/base.lock requirements/torch.lock requirements/torch.in)"; }
line_project() { printf 'project=%s\n' "$(digest pyproject.toml scripts/setup.sh)"; }
line_tools() { printf 'tools=%s\n' "$(digest requirements/dev.lock)"; }
line_missing() { printf 'missing-%s=%s\n' "$1" "$(bash scripts/system_parts.sh missing "$1" | tr '\n' ' ')"; }

has_line() { grep -qxF -e "$1" -- "$stamp" 2>/dev/null; }

# write_stamp LINE ...: puts the lines into the stamp, each in place of the one of its key.
write_stamp() {
    local line keys=()
    for line in "$@"; do
        keys+=(-e "^${line%%=*}=")
    done
    { grep -v "${keys[@]}" -- "$stamp" 2>/dev/null || true; printf '%s\n' "$@"; } >"$stamp.new" ||
        fail "cannot write $PWD/$stamp: is the disk full, or read-only?"
    mv -f -- "$stamp.new" "$stamp"
}

# It was completed, in this directory and with this interpreter.
venv_is_good() {
    local version
    [ -f "$stamp" ] && has_line "$root_line" || return 1
    version=$("$venv/bin/python" -c "$version_of" 2>/dev/null | tail -n 1) && has_line "python=$version" || return 1
    if [ -n "${PYTHON-}" ]; then
        [ "$("$PYTHON" -c "$version_of" 2>/dev/null | tail -n 1)" = "$version" ] || return 1
    fi
}

tools_are_good() { [ "$mode" = demo ] || has_line "$tools_line"; }

all_is_good() {
    venv_is_good && has_line "$locks_line" && tools_are_good && has_line "$project_line" && has_line "$missing_line"
}

report_missing() {
    local names=${missing_line#*=}
    if [ -n "$names" ]; then
        say "system parts still missing: ${names% } (make parts tries to install them)"
    fi
}

# Says why a step failed, in a person's words where the log shows the reason.
explain() {
    local what=$1
    say "FAILED: $what"
    # pip ends with advice: the lines that name an error say more.
    { grep -E '(Error|ERROR|error:|rror[]:]|No space|not found)' -- "$log" || tail -n 6 -- "$log"; } 2>/dev/null |
        tail -n 6 | cut -c 1-300 | sed 's/^/setup:   | /' >&2 || true
    if grep -qiE 'no space left|errno 28|disk quota' -- "$log" 2>/dev/null; then
        say "the disk is full:"
        df -hP . "${TMPDIR:-/tmp}" 2>/dev/null | sed 's/^/setup:   /' >&2 || true
        say "about 2 GB are needed here; pip also unpacks into ${TMPDIR:-/tmp} (TMPDIR moves that)"
    elif grep -qiE 'name resolution|connection (refused|reset|broken|aborted)|network is unreachable|timed out|max retries|newconnectionerror|could not connect' \
        -- "$log" 2>/dev/null; then
        say "the package index was not reached: is there a network, and do pip's settings name the right index?"
    elif grep -qi 'hashes are required\|do not match the hashes' -- "$log" 2>/dev/null; then
        say "a downloaded file is not the one that the lock names: it was not installed"
    elif grep -qi 'no matching distribution\|could not find a version' -- "$log" 2>/dev/null; then
        say "the index offers no build for this Python or platform; PYTHON=python3.11 chooses another Python"
    fi
    say "whole log: $PWD/$log"
    say "after mending it run make setup again"
}

step() {
    local what=$1
    shift
    say "$what"
    if ! printf '\n== %s\n' "$what" >>"$log"; then
        fail "cannot write $PWD/$log: is the disk full, or read-only?"
    fi
    if ! "$@" >>"$log" 2>&1 </dev/null; then
        explain "$what"
        exit 1
    fi
}

# Prints "version path" of a usable interpreter: new enough, and able to make a venv with pip. The path is that of
# the base interpreter, because a venv made from another one (the very .venv we replace) would die with it.
probe() {
    "$1" -c 'import sys, venv, ensurepip
if sys.version_info < (3, 11):
    raise SystemExit("too old")
print("%d.%d.%d" % sys.version_info[:3], getattr(sys, "_base_executable", None) or sys.executable)' \
        2>/dev/null </dev/null | tail -n 1
}

# Prints the microseconds that some work takes. A build without profile-guided optimisation, as pyenv makes it unless
# told otherwise, is clearly slower; no variable of the build tells it reliably.
speed() {
    "$1" -c 'import time
def work():
    began = time.process_time()
    texts = {}
    for number in range(20000):
        texts[number] = str([other for other in (number, number + 1)])
    sum(map(len, texts.values()))
    return time.process_time() - began
print(int(1e6 * min(work() for _ in range(9))))' 2>/dev/null </dev/null | tail -n 1
}

find_python() {
    local name path found took best
    if [ -n "${PYTHON-}" ]; then
        probe "$PYTHON"
        return
    fi
    # 3.11 first although it is not the newest: the locks are resolved with it, and where torch comes from a folder of
    # wheels kept on the machine it is the version such folders have. Every later version is as good.
    for name in python3.11 python3.13 python3.12 python3; do
        found=
        while IFS= read -r path; do
            if probe "$path" >/dev/null && took=$(speed "$path"); then
                if [ -z "$found" ] || [ "$took" -lt $((best * 9 / 10)) ]; then
                    found=$path best=$took
                fi
            fi
        done < <(type -aP "$name")
        if [ -n "$found" ]; then
            probe "$found"
            return
        fi
    done
    return 1
}

choose_python() {
    local found
    if ! found=$(find_python); then
        if [ -n "${PYTHON-}" ]; then
            fail "PYTHON=$PYTHON is no Python 3.11 or later with the venv and ensurepip modules"
        fi
        # Debian ships ensurepip in a package of its own.
        bash scripts/system_parts.sh install "$mode" python3-venv 9<&-
        found=$(find_python) ||
            fail "no Python 3.11 or later with venv and ensurepip was found; install one, or set PYTHON=/path/to/it"
    fi
    python_version=${found%% *}
    python_path=${found#* }
}

make_venv() {
    if [ -e "$venv" ] || [ -L "$venv" ]; then
        if [ -f "$stamp" ]; then
            say "the Python or the directory changed: building $venv again"
        else
            say "$venv is incomplete (an interrupted set-up?): building it again"
        fi
        rm -rf -- "$venv"
    fi
    mkdir -- "$venv" || fail "cannot make $PWD/$venv: is the disk full, or read-only?"
    step "making $venv with Python $python_version" "$python_path" -m venv -- "$venv"
}

# pip leaves alone what is there in the right version: a changed lock does not fetch torch a second time.
pip_install() { "$venv/bin/python" -m pip --disable-pip-version-check --no-input install --progress-bar off "$@"; }

install_packages() {
    step "installing the client (requirements/base.lock)" pip_install --require-hashes -r requirements/base.lock
    step "installing what torch needs (requirements/torch.lock)" \
        pip_install --require-hashes -r requirements/torch.lock
    # No hash: its build differs per platform (CPU, CUDA) and index. All that it needs everywhere is there by now.
    step "installing torch for the trainer, the largest part (requirements/torch.in)" \
        pip_install "$(grep '^torch==' requirements/torch.in)"
}

install_tools() {
    step "installing the developer's tools (requirements/dev.lock)" \
        pip_install --require-hashes -r requirements/dev.lock
}

install_project() {
    step "installing rgt itself" pip_install --no-deps --no-build-isolation --no-index -e .
}

root_line=$(line_root)
locks_line=$(line_locks)
tools_line=$(line_tools)
project_line=$(line_project)
missing_line=$(line_missing "$mode")

if all_is_good; then
    report_missing
    exit 0
fi

trap 'say "interrupted; the next make setup mends what is half done"; exit 130' INT TERM

# Two set-ups at once (two demos started together): the second waits, and then finds nothing to do.
if command -v flock >/dev/null 2>&1; then
    exec 9<scripts/setup.sh
    if ! flock -n 9; then
        say "waiting for another set-up of this directory"
        flock 9
        if all_is_good; then
            exit 0
        fi
    fi
fi

if [ ! -f "$stamp" ] || ! has_line "$missing_line"; then
    bash scripts/system_parts.sh install "$mode" 9<&-
    missing_line=$(line_missing "$mode")
fi

if ! venv_is_good; then
    choose_python
    make_venv
elif ! has_line "$locks_line"; then
    say "the locks changed: bringing $venv up to date"
    python_version=$("$venv/bin/python" -c "$version_of")
    rm -f -- "$stamp" # an interrupted step must not pass for a finished one
fi
if [ ! -f "$stamp" ]; then
    install_packages
    write_stamp "$root_line" "$locks_line" "python=$python_version"
fi
write_stamp "$missing_line"
# From here on only the tools and the project's own metadata can be missing: the packages stay, should a step fail.
if ! tools_are_good; then
    install_tools
    write_stamp "$tools_line"
fi
if ! has_line "$project_line"; then
    install_project
    write_stamp "$project_line"
fi
