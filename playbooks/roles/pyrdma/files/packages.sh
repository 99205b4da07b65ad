# Installs Debian packages, which are the arguments, from the present lists or else from new ones.
set -eu
command -v apt-get >/dev/null || { echo "this host has no apt-get; install by hand: $*" >&2; exit 1; }
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
# Other programs, such as unattended-upgrades, may hold the lock for minutes after a boot.
install() { apt-get -o DPkg::Lock::Timeout=300 install -y -q --no-install-recommends "$@" >/dev/null; }
install "$@" 2>/dev/null || { apt-get -o DPkg::Lock::Timeout=300 update -q >/dev/null; install "$@"; }
