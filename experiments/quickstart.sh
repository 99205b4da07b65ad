#!/bin/sh
# The main job: sets everything up, measures the raw-RDMA experiments of the five papers on the
# simulated fabric and for real over shared memory, draws the figures, and prints the verdicts.
#
#   sh experiments/quickstart.sh [RESULTS]      RESULTS: folder, ./results by default
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
results=${1:-$PWD/results}
case $results in /*) ;; *) results=$PWD/$results ;; esac
cd "$root"
. tests/setup_env.sh

ensure_system_packages run
ensure_venv build base controller
ensure_package

simulated='
fabric/latency fabric/bandwidth fabric/rate
spindle/fig1 spindle/fig14
erpc/fig1 erpc/table2 erpc/fig6
krcore/fig3a krcore/fig3b krcore/fig8a krcore/fig10a krcore/fig10b krcore/fig10c krcore/fig10d
loco/nic_facts
'
measured='fabric/latency fabric/bandwidth fabric/rate'

started=$(date +%s)
failed=
run() { # run FABRIC ID: one failure does not take the others along
  say "$2 on $1"
  pyrdma run "$2" --fabric "$1" --quick --out "$results" || failed="$failed $2($1)"
}
for id in $simulated; do run sim "$id"; done
for id in $measured; do run shm "$id"; done

say "claims"
pyrdma claims --results "$results" || failed="$failed claims"

say "done in $(($(date +%s) - started)) s; results and figures are in $results"
[ -z "$failed" ] || die "failed:$failed"
