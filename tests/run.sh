#!/bin/sh
# Sets everything up and runs every test.
#
#   sh tests/run.sh                     all: rules, types, the site, native tests plain and under
#                                       sanitizers, Python tests, the lowest versions, notebooks,
#                                       real verbs in a Soft-RoCE guest
#   sh tests/run.sh quick               without sanitizers, notebooks and slow tests
#   sh tests/run.sh native [FILTER]     native tests (plain), with a GoogleTest filter
#   sh tests/run.sh asan|tsan [FILTER]  native tests under one sanitizer set
#   sh tests/run.sh python [ARG...]     pytest with these arguments
#   sh tests/run.sh lint                rules, types, formats, stubs
#   sh tests/run.sh lowest              build and tests with each dependency at its lowest version
#   sh tests/run.sh docs                the site of all pages and docstrings, in build/site
#   sh tests/run.sh softroce            tests in the Soft-RoCE guest; fetches QEMU and a kernel if needed
#   sh tests/run.sh deploy              hosts of namespaces that fail, the playbooks on four of them with the
#                                       times, two Soft-RoCE guests from boot to a figure, ansible-lint,
#                                       sweeps by Slurm; needs root
#   sh tests/run.sh tidy                clang-tidy, when it is installed
#   sh tests/run.sh search [FILTER]     only the searches, with 20 times the seeds (PYRDMA_SEARCH)
#                                       and 20 s of hostile input for each parser (PYRDMA_HOSTILE_S)
#   sh tests/run.sh mutants [ARG...]    every deliberate bug of every system; tests/mutants/README.md
#   sh tests/run.sh mutants --machine --tests   each night: a sample of the bugs that rules make, by date
#   sh tests/run.sh wheels [VERSION...] a wheel with each Python from 3.10 to 3.13 that is here, checked and
#                                       run in a fresh environment; PYRDMA_PYTHONS names interpreters
#   sh tests/run.sh hostile [SECONDS]   hostile frames, histories and stored files, a third of the time
#                                       each, an hour if left out; from a new seed, which it prints;
#                                       PYRDMA_HOSTILE_SEED=N repeats the inputs of seed N
#
#   PYRDMA_SOFTROCE=0                   skips the tests in the guest
#   PYRDMA_SOAK_S=120 sh tests/run.sh python tests/soak       kills processes under load for two
#                                       minutes; a run of all tests does so for 20 seconds
#   PYRDMA_HOSTILE_S=60 sh tests/run.sh asan 'HostileInput*'  a minute of hostile input for each
#   PYRDMA_HOSTILE_S=60 sh tests/run.sh python tests/fuzz     parser; a run of all tests has a second
#   sh tests/fuzz/libfuzzer.sh          hostile input from libFuzzer
#
# The run ends with the times of all steps and of the slowest tests. The last line is
# `N passed, N failed`; a run of all tests that could not run real verbs says so there. The exit code is
# 0 only if a test ran and no test failed.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
cd "$root"
. tests/setup_env.sh

reports=$root/build/reports
# The Python tests measure every experiment. The notebooks show the same points.
export PYRDMA_TEST_RESULTS="$root/build/results"
jobs=$(nproc 2>/dev/null || echo 2)
what=${1:-all}
[ $# -eq 0 ] || shift
case $what in
  all | quick | native | asan | tsan | python | docs | lowest | softroce | deploy | lint | tidy | search | mutants | wheels | hostile) ;;
  *) die "unknown '$what'; one of: all quick native asan tsan python lowest docs softroce deploy lint tidy search mutants wheels hostile" ;;
esac
began=$(date +%s)
limit_s=900 # time limit of the native tests
beside= # process of a build in the background
half=   # process of tests in the background
searches='*Fuzz.*:*Scenarios*' # native tests that simulate from many seeds: half of the time of all
trap 'stop_half; stop_build; exit 130' INT
trap 'stop_half; stop_build; exit 143' TERM

step=set-up
step_began=$began
next_step() { # next_step [NAME]: ends a step and begins another; tests/summary.py prints their times
  now=$(date +%s)
  printf '%s %s\n' $((now - step_began)) "$step" >>"$reports/times.txt"
  step=${1:-}
  step_began=$now
  [ -z "$step" ] || say "$step"
}

# --- the kinds of tests -----------------------------------------------------------------------

same_twice() { # runs every simulated test twice; fabric/contract_worlds_test.h compares fingerprints
  [ -x build/release/native/native_tests ] || return 1
  build/release/native/native_tests --gtest_brief=1 --gtest_color=no --gtest_repeat=2 \
    --gtest_filter='*/sim*' >"$reports/same_twice.log" 2>&1 || { cat "$reports/same_twice.log" >&2; return 1; }
}

check() { # check NAME COMMAND...: a check that passes or fails as a whole
  name=$1
  shift
  next_step "$name"
  if "$@"; then result=passed; else result=failed; fi
  printf '%s %s\n' "$result" "$name" >>"$reports/checks.txt"
}

report_from() { # report_from NAME COMMAND...: runs a command that must write NAME.xml
  name=$1
  shift
  if "$@"; then status=0; else status=$?; fi
  if [ ! -s "$reports/$name.xml" ]; then
    printf 'failed %s (ended with status %s and no report)\n' "$name" "$status" >>"$reports/checks.txt"
  elif [ "$status" -ne 0 ]; then
    printf 'status %s %s\n' "$status" "$name" >>"$reports/checks.txt"
  fi
}

fixed_addresses() { # the thread sanitizer needs the address layout of older kernels
  if setarch "$(uname -m)" -R true 2>/dev/null; then setarch "$(uname -m)" -R "$@"; else "$@"; fi
}

stop_half() {
  [ -z "$half" ] || kill "$half" 2>/dev/null || true
}

stop_build() {
  [ -n "$beside" ] || return 0
  kill "$beside" 2>/dev/null || true
  wait "$beside" 2>/dev/null || true
  beside=
}

# Runs a command that leaves a core idle; meanwhile that core compiles tests for the first sanitizer
# whose tests are not compiled yet.
building() { # building PRESETS COMMAND...
  for preset in $1; do
    cmake --preset "$preset" >"$reports/configure-$preset.log" 2>&1 || continue
    ninja -C "build/$preset" -n native_tests 2>/dev/null | grep -q 'no work to do' && continue
    spare=nice
    chrt --idle 0 true 2>/dev/null && spare="chrt --idle 0" # a lower priority than nice gives
    $spare ninja -C "build/$preset" -j 1 native_tests >/dev/null 2>&1 &
    beside=$!
    break
  done
  shift
  "$@"
  stop_build
}

# shellcheck disable=SC2086 # words
native() { # native PRESET FILTER [FILTER]: builds native_tests and runs it, with both filters side by side
  if [ "$1" = release ]; then
    configure="cmake -DPYRDMA_TESTS=ON $build_dir"
    targets="native_tests trace_scopes"
  else
    targets=native_tests
    configure="cmake --preset $1"
  fi
  next_step "native tests ($1): build"
  if ! $configure >"$reports/configure-$1.log" 2>&1; then
    cat "$reports/configure-$1.log" >&2
    printf 'failed native_%s (configuration)\n' "$1" >>"$reports/checks.txt"
  elif ! cmake --build "build/$1" --target $targets --parallel "$jobs" >"$reports/build-$1.log" 2>&1; then
    grep -v '^\[' "$reports/build-$1.log" | tail -n 60 >&2
    printf 'failed native_%s (build)\n' "$1" >>"$reports/checks.txt"
  else
    next_step "native tests ($1)"
    if [ -n "${3:-}" ]; then
      native_tests "$1" "$3" "native_$1_beside" >"$reports/native_$1_beside.log" 2>&1 &
      half=$!
    fi
    report_from "native_$1" native_tests "$1" "$2" "native_$1"
    [ -z "$half" ] || end_half "native_$1_beside"
  fi
}

native_tests() { # native_tests PRESET FILTER REPORT
  fixed_addresses timeout "$limit_s" "build/$1/native/native_tests" --gtest_brief=1 --gtest_color=no \
    --gtest_filter="$2" --gtest_output="xml:$reports/$3.xml"
}

end_half() { # end_half NAME: waits for the tests in the background
  report_from "$1" wait "$half"
  half=
  cat "$reports/$1.log"
}

python_tests() {
  next_step "Python tests"
  report_from python python -m pytest -q -o junit_family=xunit2 --junitxml="$reports/python.xml" "$@"
}

# The tests that mostly simulate need one core; the others mostly wait for processes. The two halves
# run beside each other.
# shellcheck disable=SC2086 # lists of names
python_halves() {
  simulating="tests/experiments tests/harness tests/profiles tests/recipes tests/face tests/figures tests/programs"
  python -m pytest -q -p no:cacheprovider -o junit_family=xunit2 \
    --junitxml="$reports/python_simulating.xml" $simulating >"$reports/python_simulating.log" 2>&1 &
  half=$!
  python_tests tests $(printf -- '--ignore=%s ' tests/softroce/test_guest.py $measuring $simulating)
  next_step "Python tests that simulate: the rest"
  end_half python_simulating
}

measuring=tests/validate/test_twin.py # measures this machine, so nothing runs beside it

python_measuring() {
  next_step "Python tests that measure this machine"
  report_from python_measuring python -m pytest -q -p no:cacheprovider -o junit_family=xunit2 \
    --junitxml="$reports/python_measuring.xml" $measuring
}

has_lowest() { # NumPy 1.24 and SciPy 1.10, the lowest versions, have no wheel for a newer Python
  "$PYTHON" -c 'import sys; sys.exit(sys.version_info >= (3, 12))' && return
  say "SKIPPED: the lowest versions need Python 3.10 or 3.11, and this is $("$PYTHON" -V); set PYTHON to one"
  return 1
}

lowest_tests() ( # in an environment of its own, with the module that is installed in .venv
  installed=$(echo "$venv"/lib/python3*/site-packages)
  venv=$root/build/lowest lowest=yes
  mkdir -p "$venv"
  ensure_venv build base controller test notebook
  ln -sf "$installed"/*pyrdma* "$venv"/lib/python3*/site-packages/
  cmake -S . -B "$venv/configured" -G Ninja >"$reports/configure-lowest.log" 2>&1 ||
    { cat "$reports/configure-lowest.log" >&2; return 1; }
  jupytext --quiet --to ipynb --output "$venv/notebook.ipynb" - <<'NOTEBOOK'
# %%
from pyrdma.notebook import results_folder, show
show(results_folder(), "krcore/fig10b")
NOTEBOOK
  # The newest versions of the dependencies' own dependencies deprecate what these old ones use.
  python -m pytest -q -p no:cacheprovider -o filterwarnings=default -m 'not slow' -o junit_family=xunit2 \
    --ignore=tests/stored/test_digest.py --ignore=tests/sharing/test_killed.py \
    --junitxml="$reports/lowest.xml" --nbmake "$venv/notebook.ipynb" tests/check tests/harness/test_claims.py \
    tests/harness/test_input.py tests/harness/test_result.py tests/harness/test_sweep.py \
    tests/measure/test_histogram.py tests/profiles/test_profiles.py tests/stored tests/sharing \
    tests/setup/test_packages.py::test_scripts_call_commands_of_named_packages
)

hostile() { # hostile SECONDS: the three fuzzers one after another
  case $1 in '' | *[!0-9]*) die "hostile $1: give a whole number of seconds" ;; esac
  export PYRDMA_HOSTILE_SEED="${PYRDMA_HOSTILE_SEED:-$(date +%s)}"
  say "hostile input for $1 s, PYRDMA_HOSTILE_SEED=$PYRDMA_HOSTILE_SEED"
  limit_s=$(($1 + 900))
  export PYRDMA_HOSTILE_S=$(($1 / 3))
  native asan HostileInput.History
  for fuzzer in frames files; do
    next_step "hostile $fuzzer"
    tests=$(python -m pytest --collect-only -q -m hostile "tests/fuzz/test_$fuzzer.py" | grep -c ::) ||
      die "no test of tests/fuzz/test_$fuzzer.py has the marker hostile"
    PYRDMA_HOSTILE_S=$(($1 / 3 / tests + 1))
    report_from "hostile_$fuzzer" python -m pytest -q -m hostile -o junit_family=xunit2 \
      --junitxml="$reports/hostile_$fuzzer.xml" "tests/fuzz/test_$fuzzer.py"
  done
}

softroce() { # an emulated guest needs both CPUs of a small machine
  next_step "real verbs, in a Soft-RoCE guest"
  report_from softroce env PYRDMA_SOFTROCE="${PYRDMA_SOFTROCE:-1}" python -m pytest -q \
    -o junit_family=xunit2 --junitxml="$reports/softroce.xml" tests/softroce/test_guest.py
}

# shellcheck disable=SC2086 # lists of names
deploy() {
  ensure_packages $slurm_packages $disk_packages
  next_step "hosts and playbooks"
  report_from deploy env PYRDMA_DEPLOY=1 PYRDMA_SOFTROCE="${PYRDMA_SOFTROCE:-1}" python -m pytest -q -s \
    -o junit_family=xunit2 --junitxml="$reports/deploy.xml" tests/hosts tests/playbooks
  next_step "sweeps by Slurm"
  report_from slurm env PYRDMA_SLURM=1 python -m pytest -q -s -o junit_family=xunit2 \
    --junitxml="$reports/slurm.xml" tests/executors/test_slurm.py tests/executors/test_speed.py
  check "ansible-lint" lint_playbooks
}

lint_playbooks() { # in an environment of its own, since its dependencies are many
  linter=$root/build/ansible-lint
  [ -x "$linter/bin/ansible-lint" ] || {
    "$PYTHON" -m venv "$linter" && "$linter/bin/pip" install --quiet "ansible-lint==26.10.*" || return 1
  }
  PATH=$linter/bin:$PATH ansible-lint --offline --profile production playbooks
}

# Each of the two leaves a core idle.
notebooks_and_lowest() {
  next_step "notebooks, and lowest versions"
  if has_lowest; then
    lowest_tests >"$reports/lowest.log" 2>&1 &
    half=$!
  fi
  notebooks
  next_step "lowest versions: the rest"
  [ -z "$half" ] || end_half lowest
}

notebooks() {
  [ -d notebooks ] || return 0
  rm -rf build/notebooks
  mkdir -p build/notebooks
  for source in notebooks/*.py; do
    [ -e "$source" ] || return 0
    jupytext --quiet --to ipynb --output "build/notebooks/$(basename "$source" .py).ipynb" "$source"
  done
  report_from notebooks env PYRDMA_RESULTS="$PYRDMA_TEST_RESULTS" python -m pytest -q \
    -p no:cacheprovider --nbmake --nbmake-timeout=600 -o timeout=900 \
    -o junit_family=xunit2 --junitxml="$reports/notebooks.xml" build/notebooks
}

clang_format() {
  clang-format --version >&2 || return 1
  files=$(find native -name '*.cc' -o -name '*.h' | LC_ALL=C sort)
  # shellcheck disable=SC2086 # no path of the tree holds a space
  unformatted=$(clang-format --dry-run -Werror $files 2>&1 |
    sed -n 's/:[0-9]*:[0-9]*: error: code should be.*//p' | uniq)
  [ -n "$unformatted" ] || return 0
  printf '%s\n' "$unformatted" "format them: .venv/bin/clang-format -i FILE..." >&2
  return 1
}

lint() {
  check "ruff" ruff check .
  check "mypy" python -m mypy
  check "stubs against the module" python -m mypy.stubtest --allowlist tests/stubs.allow pyrdma._core
  check "clang-format" clang_format
}

documentation() { # warnings, such as a broken link or a public name without a page, are errors
  rm -rf build/site
  python -m sphinx --conf-dir docs --builder html --fail-on-warning --keep-going --quiet . build/site
}

tidy() {
  tool=$(command -v clang-tidy || command -v clang-tidy-14) ||
    die "clang-tidy is not installed: sudo apt-get install -y clang-tidy"
  find native -name '*.cc' ! -name '*_test.cc' | LC_ALL=C sort | tr '\n' '\0' |
    xargs -0 -n 1 -P "$jobs" "$tool" --quiet -p "$build_dir"
}

# --- the run ----------------------------------------------------------------------------------

rm -rf "$reports" "$PYRDMA_TEST_RESULTS"
mkdir -p "$reports"
: >"$reports/checks.txt"
# shellcheck disable=SC2086 # lists of names
ensure_packages $build_packages $test_packages
# shellcheck disable=SC2086
offer_packages $cache_packages $peer_packages $browser_packages
ensure_venv build base controller test notebook docs dev deploy
ensure_package

case $what in
  all)
    building "asan tsan" lint
    building "asan tsan" check "documentation" documentation
    building "asan tsan" native release "*-$searches" "$searches"
    softroce
    building "asan tsan" check same_run_twice same_twice
    building "asan tsan" python_halves
    python_measuring
    building "asan tsan" notebooks_and_lowest
    # A suite *Bugs searches many seeds for a deliberate bug, for a minute and more. It runs the code of
    # other tests, like the two suites that are named.
    left_out='*Bugs.*:LitmusSim.*:*FuzzFault*torn*'
    building tsan native asan "*-$searches:*Tailwind*:$left_out" "$searches:*Tailwind*-$left_out"
    # A suite *Sim runs in the simulator alone, and so does a test of the world sim. A simulation is one
    # thread without races, and its fibers cost the thread sanitizer memory. A parser has one thread.
    native tsan '*/*-*/sim*:*Sim.*:*Bugs.*' '-*/*:*Sim.*:*Bugs.*:*Fuzz.*:HostileInput.Race*:HostileInput.Spindle*:Histogram.*'
    ;;
  quick)
    lint
    native release '*'
    python_tests -m 'not slow'
    ;;
  native) native release "${1:-*}" ;;
  asan | tsan) native "$what" "${1:-*}" ;;
  python) python_tests "$@" ;;
  lowest)
    next_step "lowest versions"
    ! has_lowest || report_from lowest lowest_tests
    ;;
  docs)
    check "documentation" documentation
    [ ! -f build/site/index.html ] || say "the site begins at build/site/index.html"
    ;;
  softroce)
    native release 'Verbs*' # builds the tests, which skip outside of the guest
    softroce
    ;;
  deploy) deploy ;;
  lint)
    lint
    python_tests tests/tidy
    ;;
  tidy) check "clang-tidy" tidy ;;
  search)
    export PYRDMA_SEARCH="${PYRDMA_SEARCH:-20}" PYRDMA_HOSTILE_S="${PYRDMA_HOSTILE_S:-20}"
    limit_s=14400
    native release "${1:-Fuzz.*:*Fuzz.*:*Storm*:*ExploreSim.*:*MembershipSim.*:*Bugs.*:*Hostile*}"
    ;;
  mutants) check "mutants" python -m tests.mutants.run "$@" ;;
  wheels) check "wheels" python -m tests.wheels.run "$@" ;;
  hostile) hostile "${1:-3600}" ;;
esac

next_step
printf '\n'
exec python tests/summary.py "$reports" "$began" "$what"
