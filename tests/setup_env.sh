# Sets this machine up: system packages, a virtual environment in the tree, the package in it.
# Read with `.` by experiments/quickstart.sh and tests/run.sh, which set `root` before.
# Everything is checked first, so a second run installs nothing.
# shellcheck shell=sh disable=SC2154

venv=$root/.venv
build_dir=$root/build/release
PYTHON=${PYTHON:-python3}
# With ccache, another clone of the same sources compiles from the same cache.
export CCACHE_BASEDIR="${CCACHE_BASEDIR:-$root}" CCACHE_NOHASHDIR=1

say() { printf '\n==> %s  (%s)\n' "$*" "$(date +%T)" >&2; }
die() { printf '\nerror: %s\n' "$*" >&2; exit 1; }

# --- system packages ------------------------------------------------------------------------

compiles() { # compiles SOURCE [FLAG...]: whether the compiler takes and links it
  source=$1
  shift
  probe=$(mktemp -d) || die "no temporary folder: is /tmp full?"
  printf '%s\n' "$source" >"$probe/probe.cc"
  if "${CXX:-c++}" -std=c++20 -o "$probe/probe" "$probe/probe.cc" "$@" >"$probe/log" 2>&1; then
    status=0
  else
    status=1
  fi
  rm -rf "$probe"
  return $status
}

has_python() {
  "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1
}

has_python_headers() {
  "$PYTHON" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' \
    >/dev/null 2>&1
}

missing_packages() { # prints the packages without which nothing can be built
  "$PYTHON" -c '' >/dev/null 2>&1 || echo python3
  "$PYTHON" -c 'import ensurepip, venv' >/dev/null 2>&1 || echo python3-venv
  has_python_headers || echo python3-dev
  compiles '#include <span>
int main() { return 0; }' || echo g++
  # Looked for as CMake will: its static library and its headers.
  compiles '#include <boost/context/fiber.hpp>
int main() { boost::context::fiber f; return f ? 1 : 0; }' -lboost_context ||
    echo libboost-context-dev
  if [ "$1" = test ]; then
    compiles '#include <gtest/gtest.h>
int main(int n, char** v) { testing::InitGoogleTest(&n, v); return 0; }' -lgtest -lpthread ||
      echo libgtest-dev
  fi
}

missing_peers() { # prints the packages of the peers, which are measured when they are there
  command -v ucx_perftest >/dev/null || echo ucx-utils
  command -v mpirun >/dev/null || echo openmpi-bin
  command -v mpicc >/dev/null || echo libopenmpi-dev
  [ -e /usr/include/simgrid/s4u.hpp ] || echo libsimgrid-dev
  command -v redis-server >/dev/null || echo redis-server
  command -v redis-benchmark >/dev/null || echo redis-tools
}

as_root() {
  if [ "$(id -u)" = 0 ]; then
    env DEBIAN_FRONTEND=noninteractive "$@"
  else
    sudo env DEBIAN_FRONTEND=noninteractive "$@"
  fi
}

may_install() { # root, or a sudo that does not have to ask, or somebody there to answer it
  command -v apt-get >/dev/null || return 1
  [ "$(id -u)" = 0 ] && return 0
  command -v sudo >/dev/null || return 1
  [ -t 0 ] || sudo -n true 2>/dev/null
}

apt_install() {
  as_root apt-get install -y --no-install-recommends "$@" >&2
}

ensure_system_packages() { # ensure_system_packages run|test
  # The probes compile small programs; once they have passed they need no repetition.
  [ ! -e "$venv/.system-$1" ] || return 0
  needed=$(missing_packages "$1" | tr '\n' ' ')
  if [ -n "$needed" ]; then
    command="sudo apt-get update && sudo apt-get install -y $needed"
    may_install ||
      die "missing: $needed
Neither root nor a usable sudo with apt-get is here. Have an administrator run:
    $command"
    say "installing system packages: $needed"
    as_root apt-get update >&2 || say "apt-get update failed; trying with the lists that are here"
    # shellcheck disable=SC2086 # a list of names
    apt_install $needed || die "apt-get could not install: $needed. By hand:
    $command"
    updated=yes
    left=$(missing_packages "$1" | tr '\n' ' ')
    [ -z "$left" ] || die "still not usable after the installation: $left"
  fi
  has_python || die "$PYTHON is $("$PYTHON" -V 2>&1); pyrdma needs Python 3.10 or newer.
Set PYTHON to one, for example: PYTHON=python3.11 sh $0"

  # Peers are optional. One attempt is made; what fails is skipped by name when it is measured.
  peers=$(missing_peers | tr '\n' ' ')
  if [ -n "$peers" ] && may_install; then
    say "installing peers to compare with: $peers"
    [ "${updated:-no}" = yes ] || as_root apt-get update >&2 || true
    for package in $peers; do
      apt_install "$package" || say "$package could not be installed; its comparison will be skipped"
    done
  fi
  system_ready=.system-$1
}

# --- Python ---------------------------------------------------------------------------------

digest() { sha256sum | cut -d ' ' -f 1; }

source_digest() { # changes with what is compiled, and with the list of the Python files
  {
    echo "$1"
    "$venv/bin/python" -V
    find native CMakeLists.txt pyproject.toml -type f ! -name '*_test.cc' ! -name '*.md' -print |
      LC_ALL=C sort | tr '\n' '\0' | xargs -0 sha256sum
    find pyrdma experiments -type f ! -path '*/__pycache__/*' -print | LC_ALL=C sort
  } | digest
}

stamped() { [ "$(cat "$venv/$1" 2>/dev/null)" = "$2" ]; }

ensure_venv() { # ensure_venv EXTRA...: the environment and the dependencies of these extras
  if ! "$venv/bin/python" -c 'import pip' >/dev/null 2>&1; then
    say "creating the virtual environment .venv"
    rm -rf "$venv"
    "$PYTHON" -m venv "$venv" || die "could not create $venv; is the disk full or read-only?"
  fi
  [ -z "${system_ready:-}" ] || : >"$venv/$system_ready"
  PATH=$venv/bin:$PATH
  export PATH

  for extra; do
    requirements=$(digest <pyproject.toml)
    stamped ".extra-$extra" "$requirements" && continue
    say "installing Python packages ($extra)"
    # The build's own tools are kept in the environment: cmake and ninja need no system package,
    # and without build isolation the build folder can be used again.
    [ "$extra" != build ] ||
      pip install --quiet --upgrade pip 'cmake>=3.22' ninja 'pybind11>=3.0' 'scikit-build-core>=0.11' ||
      die "pip could not install the build tools (see above); is the network reachable?"
    [ "$extra" = build ] || pip_install_extra "$extra"
    echo "$requirements" >"$venv/.extra-$extra"
  done
}

pip_install_extra() { # the dependencies alone: the package itself is built once, afterwards
  list=$("$venv/bin/python" - "$1" <<'PYTHON'
import sys

try:
    import tomllib
except ModuleNotFoundError:
    from pip._vendor import tomli as tomllib
with open("pyproject.toml", "rb") as file:
    project = tomllib.load(file)["project"]
extra = sys.argv[1]
rows = project["dependencies"] if extra == "base" else project["optional-dependencies"][extra]
print("\n".join(rows))
PYTHON
  ) || die "pyproject.toml could not be read"
  printf '%s\n' "$list" >"$venv/requirements-$1.txt"
  pip install --quiet -r "$venv/requirements-$1.txt" ||
    die "pip could not install the packages of '$1' (see above); is the network reachable?"
}

ensure_package() { # builds pyrdma and installs it, unless what is installed is of these sources
  now=$(source_digest "$(id -u)")
  if stamped .installed "$now" && python -c 'import pyrdma._core' >/dev/null 2>&1; then
    return 0
  fi
  say "building and installing pyrdma"
  rm -f "$venv/.installed"
  started=$(date +%s)
  # In place, so that an edited experiment runs without another installation.
  pip install --quiet --no-build-isolation --no-deps --config-settings=build-dir="$build_dir" \
    --editable . || die "the build failed; the reason stands above"
  say "built and installed in $(($(date +%s) - started)) s"
  echo "$now" >"$venv/.installed"
}
