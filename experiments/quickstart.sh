#!/bin/sh
# The main job: sets everything up, measures the raw-RDMA experiments of the five papers on the
# simulated fabric and for real over shared memory, draws the figures, and judges the claims. Ends
# with a summary of one screen.
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
attempt() { # attempt WHAT COMMAND...: one failure does not take the rest along
  what=$1
  shift
  say "$what"
  "$@" || failed="$failed, $what"
}

attempt "every experiment on the simulated fabric" \
  pyrdma run all --fabric sim --quick --out "$results"
attempt "the same, for real, over shared memory" \
  pyrdma run all --fabric shm --quick --out "$results"
attempt "what came of it" pyrdma summary --out "$results"
say "done in $(($(date +%s) - began)) s. To type the commands above: . .venv/bin/activate"
[ -z "$failed" ] || die "failed: ${failed#, }"
