# Sets this machine up: system packages, a virtual environment in the tree, the package in it.
# experiments/quickstart.sh and tests/run.sh read this file with `.` after they have set `root`.
# Each step first checks what is installed, so a second run installs nothing.
# shellcheck shell=sh disable=SC2154

venv=$root/.venv
build_dir=$root/build/release
PYTHON=${PYTHON:-python3}
# With ccache, a copy or another clone of the same sources compiles from the same cache.
export CCACHE_BASEDIR="${CCACHE_BASEDIR:-$root}" CCACHE_NOHASHDIR=1

say() { printf '\n==> %s  (%s)\n' "$*" "$(date +%T)" >&2; }
die() { printf '\nerror: %s\n' "$*" >&2; exit 1; }
digest() { sha256sum | cut -d ' ' -f 1; }
stamped() { [ "$(cat "$venv/$1" 2>/dev/null)" = "$2" ]; } # stamped FILE TEXT

# --- system packages ------------------------------------------------------------------------

# Debian's packages, by their user. tests/setup checks that the build and the tests use no others.
build_packages="python3 python3-venv python3-dev g++ libboost-context-dev libibverbs-dev librdmacm-dev
libraft-dev liblmdb-dev"
test_packages="libgtest-dev mount clang libclang-rt-dev valgrind openssh-server openssh-client iproute2 systemd"
# Slurm on this machine, for the tests of `sh tests/run.sh deploy`.
slurm_packages="slurmctld slurmd slurm-client munge"
# Roots and disks of Debian, for the guests of `sh tests/run.sh deploy`.
disk_packages="mmdebstrap e2fsprogs"
# The scripts use these packages if they are installed, and never install them.
optional_packages="git sudo"
# The test of the recipes builds a copy of the tree, in a fifth of the time with the compiler's cache.
cache_packages="ccache"
# The browser in which a test opens a report. Ubuntu's package needs snapd, so the test skips without it.
browser_packages="chromium"
# The peers of `pyrdma bench`. The benchmark skips a peer that cannot be installed, and names it.
peer_packages="ucx-utils openmpi-bin libopenmpi-dev libsimgrid-dev redis-server redis-tools libucx-dev libtbb-dev
libgrpc++-dev libprotobuf-dev protobuf-compiler-grpc etcd-server etcd-client cyclonedds-dev cyclonedds-tools
corosync libcpg-dev"

compiles() { # compiles SOURCE [FLAG...]: whether the compiler compiles and links it
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

is_there() { # is_there PACKAGE: whether its contents are here, from any source
  case $1 in
    python3) "$PYTHON" -c '' ;;
    python3-venv) "$PYTHON" -c 'import ensurepip, venv' ;;
    python3-dev) "$PYTHON" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' ;;
    g++) compiles '#include <span>
int main() { return 0; }' ;;
    # The probe needs the same files as CMake: the static library and the headers.
    libboost-context-dev) compiles '#include <boost/context/fiber.hpp>
int main() { boost::context::fiber f; return f ? 1 : 0; }' -lboost_context ;;
    libibverbs-dev) compiles '#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
int main() { return 0; }' ;;
    librdmacm-dev) compiles '#include <rdma/rdma_cma.h>
int main() { return 0; }' ;;
    libgtest-dev) compiles '#include <gtest/gtest.h>
int main(int n, char** v) { testing::InitGoogleTest(&n, v); return 0; }' -lgtest -lpthread ;;
    libraft-dev) compiles 'extern "C" {
#include <raft.h>
}
int main() { return raft_strerror(0) == nullptr; }' -lraft ;;
    liblmdb-dev) compiles '#include <lmdb.h>
int main() { return mdb_version(nullptr, nullptr, nullptr) == nullptr; }' -llmdb ;;
    mount) command -v mount ;;
    ccache) command -v ccache ;;
    clang) command -v clang++ ;;
    # sshd is no command of a user, whose path may lack its folder.
    openssh-server) [ -x /usr/sbin/sshd ] ;;
    openssh-client) command -v ssh-keygen ;;
    iproute2) command -v ip || [ -x /sbin/ip ] ;;
    systemd) [ -x /lib/systemd/systemd ] ;;
    chromium) command -v chromium ;;
    valgrind) command -v valgrind ;;
    libclang-rt-dev) (CXX=clang++ && compiles 'int main() { return 0; }' -fsanitize=address) ;;
    ucx-utils) command -v ucx_perftest ;;
    openmpi-bin) command -v mpirun ;;
    libopenmpi-dev) command -v mpicc ;;
    libsimgrid-dev) [ -e /usr/include/simgrid/s4u.hpp ] ;;
    libucx-dev) [ -e /usr/include/ucp/api/ucp.h ] ;;
    libtbb-dev) [ -e /usr/include/oneapi/tbb/concurrent_map.h ] ;;
    libgrpc++-dev) [ -e /usr/include/grpcpp/grpcpp.h ] ;;
    libprotobuf-dev) [ -e /usr/include/google/protobuf/message.h ] ;;
    protobuf-compiler-grpc) command -v protoc && command -v grpc_cpp_plugin ;;
    etcd-server) command -v etcd ;;
    etcd-client) command -v etcdctl ;;
    cyclonedds-dev) [ -e /usr/include/dds/dds.h ] ;;
    cyclonedds-tools) command -v idlc ;;
    corosync) command -v corosync || [ -x /usr/sbin/corosync ] ;;
    libcpg-dev) [ -e /usr/include/corosync/cpg.h ] ;;
    redis-server) command -v redis-server ;;
    redis-tools) command -v redis-benchmark ;;
    slurmctld) command -v slurmctld || [ -x /usr/sbin/slurmctld ] ;;
    slurmd) command -v slurmd || [ -x /usr/sbin/slurmd ] ;;
    slurm-client) command -v squeue ;;
    munge) command -v munged || [ -x /usr/sbin/munged ] ;;
    mmdebstrap) command -v mmdebstrap ;;
    e2fsprogs) command -v mke2fs || [ -x /sbin/mke2fs ] ;;
    *) die "is_there has no test for the package $1" ;;
  esac >/dev/null 2>&1
}

missing_of() { # missing_of PACKAGE...: prints the missing ones
  for package; do
    is_there "$package" || printf '%s ' "$package"
  done
}

as_root() {
  if [ "$(id -u)" = 0 ]; then
    env DEBIAN_FRONTEND=noninteractive "$@"
  else
    sudo env DEBIAN_FRONTEND=noninteractive "$@"
  fi
}

may_install() { # root, a sudo that asks for no password, or a terminal where a user can type it
  command -v apt-get >/dev/null || return 1
  [ "$(id -u)" = 0 ] && return 0
  command -v sudo >/dev/null || return 1
  [ -t 0 ] || sudo -n true 2>/dev/null
}

apt_install() {
  if [ -z "${updated:-}" ]; then
    as_root apt-get update >&2 || say "apt-get update failed; trying with the present lists"
    updated=yes
  fi
  as_root apt-get install -y --no-install-recommends "$@" >&2
}

ensure_packages() { # ensure_packages PACKAGE...: installs the missing ones
  # The probes compile small programs, so a package that was found once is not probed again.
  found=$(cat "$venv/.system" 2>/dev/null || true)
  unsure=
  for package; do
    case " $found " in *" $package "*) ;; *) unsure="$unsure $package" ;; esac
  done
  [ -n "$unsure" ] || return 0
  # shellcheck disable=SC2086 # lists of names
  needed=$(missing_of $unsure)
  if [ -n "$needed" ]; then
    command="sudo apt-get update && sudo apt-get install -y $needed"
    may_install ||
      die "missing: $needed
This user cannot install packages (no root, no sudo without a password, or no apt-get). Ask an administrator to run:
    $command"
    say "installing system packages: $needed"
    # shellcheck disable=SC2086
    apt_install $needed || die "apt-get could not install: $needed. Install by hand:
    $command"
    # shellcheck disable=SC2086
    left=$(missing_of $needed)
    [ -z "$left" ] || die "still not usable after the installation: $left"
  fi
  "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    die "$PYTHON is $("$PYTHON" -V 2>&1); pyrdma needs Python 3.10 or newer.
Set PYTHON to one, for example: PYTHON=python3.11 sh $0"
  found=$found$unsure
}

offer_packages() { # offer_packages PACKAGE...: one attempt each
  peers=$(missing_of "$@")
  if [ -z "$peers" ] || ! may_install; then return 0; fi
  say "installing what some tests use: $peers"
  for package in $peers; do
    apt_install "$package" || say "$package could not be installed; what needs it will be skipped"
  done
}

# --- Python ---------------------------------------------------------------------------------

source_digest() { # changes with the compiled files, and with the list of the Python files
  {
    echo "$1"
    "$venv/bin/python" -V
    find native CMakeLists.txt pyproject.toml -type f ! -name '*_test.cc' ! -name '*.md' -print |
      LC_ALL=C sort | tr '\n' '\0' | xargs -0 sha256sum
    find pyrdma experiments -type f ! -path '*/__pycache__/*' -print | LC_ALL=C sort
  } | digest
}

ensure_venv() { # ensure_venv EXTRA...: the environment and the dependencies of these extras
  if ! "$venv/bin/python" -c 'import pip' >/dev/null 2>&1; then
    say "creating the virtual environment .venv"
    rm -rf "$venv"
    "$PYTHON" -m venv "$venv" || die "could not create $venv; is the disk full or read-only?"
  fi
  [ -z "${found:-}" ] || echo "$found" >"$venv/.system"
  PATH=$venv/bin:$PATH
  export PATH

  requirements=$(digest <pyproject.toml)
  wanted=
  for extra; do
    stamped ".extra-$extra" "$requirements" || wanted="$wanted $extra"
  done
  [ -n "$wanted" ] || return 0
  say "installing Python packages:$wanted"
  # shellcheck disable=SC2086 # a list of names
  requirements_of $wanted >"$venv/requirements.txt" || die "pyproject.toml could not be read"
  pip install --quiet --requirement "$venv/requirements.txt" ||
    die "pip could not install these packages (see above); is the network reachable?"
  for extra in $wanted; do echo "$requirements" >"$venv/.extra-$extra"; done
}

# Without pyrdma itself, which is built later, once. With lowest=yes each version is the lowest.
requirements_of() { # requirements_of EXTRA...
  "$venv/bin/python" - "${lowest:-}" "$@" <<'PYTHON'
import sys

try:
    import tomllib
except ModuleNotFoundError:
    from pip._vendor import tomli as tomllib
with open("pyproject.toml", "rb") as file:
    document = tomllib.load(file)
lists = {
    # The environment has the build's tools: cmake and ninja then need no system package, and builds
    # without build isolation can use the build folder again.
    "build": ["pip", "cmake>=3.22", "ninja", *document["build-system"]["requires"]],
    "base": document["project"]["dependencies"],
    **document["project"]["optional-dependencies"],
}
lowest, *extras = sys.argv[1:]
for extra in extras:
    for requirement in lists[extra]:
        print(requirement.replace(">=", "==", 1) if lowest else requirement)
PYTHON
}

ensure_package() { # builds and installs pyrdma unless these sources are installed
  now=$(source_digest "$(id -u)")
  if stamped .installed "$now" && python -c 'import pyrdma._core' >/dev/null 2>&1; then
    return 0
  fi
  say "building and installing pyrdma"
  rm -f "$venv/.installed"
  started=$(date +%s)
  # The package is installed in place, so that an edited experiment runs without another installation.
  # PYRDMA_VERBS=ON makes a missing header an error, which it is not in a plain `pip install`.
  pip install --quiet --no-build-isolation --no-deps --config-settings=build-dir="$build_dir" \
    --config-settings=cmake.define.PYRDMA_VERBS=ON --editable . || die "the build failed; see the error above"
  say "built and installed in $(($(date +%s) - started)) s"
  echo "$now" >"$venv/.installed"
}
