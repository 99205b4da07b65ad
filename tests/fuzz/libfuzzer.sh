#!/bin/sh
# Runs the HostileInput targets under libFuzzer with the address and undefined-behaviour sanitizers.
#
#   sh tests/fuzz/libfuzzer.sh [SECONDS [TARGET...]]     default: 60 s each, all targets
#
# A target is a file native/**/hostile_TARGET_test.cc; its findings lie in build/libfuzzer/TARGET/.
# The compiler is $CXX, or else clang++, which the script installs if it is missing.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
cd "$root"
. tests/setup_env.sh
build=${PYRDMA_FUZZ_BUILD:-$root/build/libfuzzer}
seconds=${1:-60}
[ $# -eq 0 ] || shift

# shellcheck disable=SC2086 # lists of names
ensure_packages $build_packages $test_packages
ensure_venv build
compiler=${CXX:-clang++}
mkdir -p "$build"
cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_COMPILER="$compiler" \
  -DCMAKE_CXX_FLAGS=-fsanitize=fuzzer-no-link "-DPYRDMA_SANITIZE=address;undefined" \
  -DPYRDMA_PYTHON=OFF -DPYRDMA_TESTS=OFF >"$build.log" 2>&1 || { cat "$build.log" >&2; exit 1; }
cmake --build "$build" --target pyrdma_programs --parallel "${JOBS:-$(nproc)}" >"$build.log" 2>&1 ||
  { tail -n 60 "$build.log" >&2; exit 1; }

failed=0
for source in $(find "$root/native" -name 'hostile_*_test.cc' | LC_ALL=C sort); do
  target=$(basename "$source" _test.cc)
  target=${target#hostile_}
  case " ${*:-$target} " in *" $target "*) ;; *) continue ;; esac
  folder=$build/$target
  mkdir -p "$folder/corpus"
  "$compiler" -std=c++20 -O1 -g1 -march=x86-64-v2 -fsanitize=fuzzer,address,undefined \
    -fno-sanitize-recover=all -DPYRDMA_LIBFUZZER -I"$root/native" "$source" \
    "$build/native/libpyrdma_programs.a" "$build/native/libpyrdma_native.a" -lboost_context -lgtest -pthread -ldl -o "$folder/run"
  printf '\n== %s: %s s\n' "$target" "$seconds"
  (cd "$folder" && ./run -max_total_time="$seconds" -max_len=4096 -timeout=20 -rss_limit_mb=2048 \
    -print_final_stats=1 corpus >log 2>&1) || failed=1
  grep -E 'number_of_executed_units|average_exec|SUMMARY|ERROR|cov:' "$folder/log" | tail -n 5
done
exit $failed
