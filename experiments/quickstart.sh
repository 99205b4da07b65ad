#!/bin/sh
# Sets everything up, measures all experiments on the simulated fabric and in real time over shared
# memory, draws the figures, and judges the claims. It ends with a summary of one screen.
#
#   sh experiments/quickstart.sh [RESULTS]      RESULTS: folder, ./results by default
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
results=${1:-$PWD/results}
case $results in /*) ;; *) results=$PWD/$results ;; esac
cd "$root"
. tests/setup_env.sh
began=$(date +%s)

# shellcheck disable=SC2086 # a list of names
ensure_packages $build_packages
ensure_venv build base controller
ensure_package

failed=
attempt() { # attempt TITLE COMMAND...: a failure does not end the other steps
  what=$1
  shift
  say "$what"
  "$@" || failed="$failed, $what"
}

attempt "every experiment on the simulated fabric" \
  pyrdma run all --fabric sim --quick --out "$results"
attempt "every experiment that can run over shared memory, in real time" \
  pyrdma run all --fabric shm --quick --out "$results"
attempt "summary" pyrdma summary --out "$results"
say "done in $(($(date +%s) - began)) s. To type the commands above: . .venv/bin/activate"
[ -z "$failed" ] || die "failed: ${failed#, }"
