#!/usr/bin/env bash
# The programs that rgt uses beside Python.
#   system_parts.sh missing demo|all           print the missing commands, one a line
#   system_parts.sh check                      explain what the tests lack and fail, or say nothing
#   system_parts.sh install demo|all [PKG …]   as root on Debian install what is missing (and the named packages);
#                                              elsewhere explain what to install, and succeed
# demo: what `make demo` uses; all: what the tests use, too.
set -euo pipefail

# A person's PATH often lacks the directories of the daemons.
PATH="$PATH:${RGT_SBIN-/usr/local/sbin:/usr/sbin:/sbin}"
policy=${RGT_POLICY_RC-/usr/sbin/policy-rc.d}
policy_mark='# written by rgt while it installs packages; safe to remove'

# who uses it, command (or header of C), Debian package, what does not work without it
parts() {
    cat <<'TABLE'
demo ssh openssh-client logging in on a demo box by hand, and the tests that compare with the plain ssh client
test sshd openssh-server the tests against a real OpenSSH server
demo tmux tmux queues detached in tmux (setsid is used instead)
test rsync rsync transfers with rsync
test git git the tests of what is pushed from a repository, and of the state of the code that a run notes
test sbatch slurm-wlm queues handed to Slurm
test slurmctld slurm-wlm the tests against a real Slurm controller
test slurmd slurm-wlm the tests against a real Slurm node
test kubectl kubernetes-client the tests of Kubernetes with a local API server
test munged munge the tests against a real Slurm
test cc gcc the tests with a pretended GPU driver and with clocks that jump
test stdlib.h libc6-dev the same: a bare gcc comes without the headers
test zsh zsh the tests of the completion in zsh
test fish fish the tests of the completion in fish
test tcsh tcsh the tests of commands in tcsh
test mksh mksh the tests of commands in mksh
test cron cron the test of a box that continues its queues with cron
test locale-gen locales the tests of boxes whose locale is not UTF-8
demo setsid util-linux queues detached without tmux
demo unshare util-linux the demo boxes' own disks and process lists
demo nsenter util-linux the demo boxes' own disks and process lists
test rpmbuild rpm the test of the lists of packages that rpm keeps
test busybox busybox the tests of boxes that have nothing but a small shell
test ip iproute2 the tests with jump hosts in networks of their own
test chromium-headless-shell chromium-headless-shell the test of rgt serve in a real browser
TABLE
}

has() {
    case $1 in
        # Ubuntu has it as a snap only, and its machines for CI have Chrome: any that the test can drive will do.
        chromium-headless-shell)
            command -v chromium-headless-shell chromium google-chrome chromium-browser >/dev/null 2>&1
            ;;
        *.h) cc -E - <<<"#include <$1>" >/dev/null 2>&1 ;;
        *) command -v "$1" >/dev/null 2>&1 ;;
    esac
}

# missing demo|all
missing() {
    local user command package why
    while read -r user command package why; do
        [ "$1" = all ] || [ "$user" = demo ] || continue
        has "$command" || printf '%s %s %s\n' "$command" "$package" "$why"
    done < <(parts)
}

explain() {
    local lines=$1 command package why
    echo "system parts: missing on this machine" >&2
    while read -r command package why; do
        printf '  %-10s (package %s)  without it: %s\n' "$command" "$package" "$why" >&2
    done <<<"$lines"
}

packages_of() {
    cut -d ' ' -f 2 <<<"$1" | sort -u
}

# The daemons are wanted for tests that start their own copies: the packages must not start any, now or at boot.
forbid_services() {
    if [ -e "$policy" ] && ! grep -qxF "$policy_mark" "$policy" 2>/dev/null; then
        return # somebody else's policy, most likely a container's: leave it
    fi
    if printf '#!/bin/sh\n%s\nexit 101\n' "$policy_mark" >"$policy" 2>/dev/null; then
        chmod 755 "$policy"
        trap 'rm -f -- "$policy"' EXIT
        trap 'exit 130' INT TERM
    fi
}

disable_at_boot() {
    local unit
    command -v systemctl >/dev/null 2>&1 || return 0
    for unit in "$@"; do
        systemctl disable --quiet "$unit" >/dev/null 2>&1 || true
    done
}

install() {
    local mode=$1 lines wanted=() units=() package
    shift
    lines=$(missing "$mode")
    if [ -z "$lines" ] && [ "$#" -eq 0 ]; then
        return 0
    fi
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
        if [ -n "$lines" ]; then
            explain "$lines"
        fi
        packages_of "$lines" | tr '\n' ' ' | sed 's/^ *//; s/^/  to install them, as root on Debian: apt-get install /' >&2
        printf '%s\n' "$*" >&2
        return 0
    fi
    wanted=("$@")
    if [ -n "$lines" ]; then
        while read -r package; do
            wanted+=("$package")
            case $package in
                openssh-server) units+=(ssh.service ssh.socket) ;;
                slurm-wlm) units+=(slurmctld.service slurmd.service) ;;
                munge) units+=(munge.service) ;;
            esac
        done < <(packages_of "$lines")
    fi
    echo "system parts: apt-get install ${wanted[*]}" >&2
    forbid_services
    export DEBIAN_FRONTEND=noninteractive
    local options=(-q -y -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0)
    # A fresh machine has no lists, and an old list names versions that are gone.
    if ! apt-get "${options[@]}" update >&2; then
        echo "system parts: apt-get update failed (no network?); trying with the lists that are here" >&2
    fi
    if ! apt-get "${options[@]}" install --no-install-recommends "${wanted[@]}" >&2; then
        echo "system parts: apt-get install failed, its messages are above; trying one by one" >&2
        # One package that a distribution does not have must not keep the others away.
        for package in "${wanted[@]}"; do
            apt-get "${options[@]}" install --no-install-recommends "$package" >&2 ||
                echo "system parts: apt-get install $package failed" >&2
        done
    fi
    if [ "${#units[@]}" -gt 0 ]; then
        disable_at_boot "${units[@]}"
    fi
    lines=$(missing "$mode")
    if [ -n "$lines" ]; then
        explain "$lines"
    fi
}

case ${1-} in
    missing) missing "${2:-all}" | cut -d ' ' -f 1 ;;
    check)
        lines=$(missing all)
        if [ -n "$lines" ]; then
            explain "$lines"
            echo "system parts: the tests need all of them (make parts installs them, as root on Debian)" >&2
            exit 1
        fi
        ;;
    install)
        shift
        install "${1:-all}" "${@:2}"
        ;;
    *)
        echo "usage: $0 missing [demo|all] | check | install [demo|all] [PACKAGE …]" >&2
        exit 2
        ;;
esac
