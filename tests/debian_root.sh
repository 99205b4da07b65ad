# Makes bare roots of Debian that reach its packages as this machine does. Scripts read this file with `.`.
# shellcheck shell=sh

debian_sources=/etc/apt/sources.list.d/debian.sources
debian_release=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)

make_debian_root() { # make_debian_root RELEASE FOLDER PACKAGE,PACKAGE...: needs root, and mmdebstrap
  rm -rf --one-file-system "$2"
  sed "s/$debian_release/$1/g" $debian_sources >"$2.sources"
  mmdebstrap --quiet --variant=apt --include="$3" "$1" "$2" "$2.sources" >&2 || { rm -f "$2.sources"; return 1; }
  rm "$2.sources"
  # apt's settings are those of this machine.
  rm -f "$2"/etc/apt/sources.list.d/*
  cp -a /etc/apt/. "$2/etc/apt/"
  sed -i "s/$debian_release/$1/g" "$2$debian_sources"
  copy_ways_out "$2"
}

copy_ways_out() { # copy_ways_out ROOT: certificates and names, for access to the package registries
  cp -aL /etc/ssl/certs/ca-certificates.crt "$1/etc/ssl/certs/"
  cp -L /etc/resolv.conf /etc/hosts "$1/etc/" 2>/dev/null || true
}
