# Makes the guest's kernel and initramfs once and keeps them in $cache. run.sh reads this file with `.`.
# shellcheck shell=sh disable=SC2154

# The modules in dependency order. rdma_rxe needs crc32_generic where it exists, although no dependency
# states it.
modules="virtio_pci 9p 9pnet_virtio overlay virtio_net crc32_generic rdma_rxe ib_uverbs rdma_ucm dummy
  virtio_blk ext4"

# The name of an image contains a checksum of its sources.
made_of=$(cat "$here/init" "$here/image.sh" | cksum | cut -d ' ' -f 1)

newest_kernel() { # prints the package of the newest kernel that apt knows
  apt-cache depends linux-image-amd64 2>/dev/null |
    sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1
}

newest_cached() { # prints the folder of the newest kernel in the cache
  for folder in "$cache"/linux-image-*-"$made_of"; do
    [ ! -f "$folder/initramfs" ] || printf '%s\n' "$folder"
  done | sort -V | tail -n 1
}

has_lists() { # whether apt has lists of packages
  for list in /var/lib/apt/lists/*_Packages*; do [ -e "$list" ] && return 0; done
  return 1
}

find_kernel() { # skips where no kernel is available, before any installation
  [ -z "$(newest_kernel)" ] && [ -z "$(newest_cached)" ] || return 0
  has_lists || apt update || true
  [ -n "$(newest_kernel)" ] ||
    skip "for Debian only: apt has no linux-image-amd64, the kernel that the guest boots; missing" \
      "besides: $(missing)"
}

take_kernel() { # sets kernel, a folder that stays while file descriptor 7 is open
  exec 8<"$cache"
  if flock 8; then # the holder of the lock may fetch; partial downloads of others are left over
    for old in "$cache"/pyrdma-softroce-fetch.*; do
      [ ! -d "$old" ] || [ -h "$old" ] || rm -rf "$old"
    done
  fi
  name=$(newest_kernel)
  kernel=$cache/$name-$made_of
  if [ -z "$name" ] || [ ! -f "$kernel/initramfs" ]; then
    if [ -n "$name" ] && download; then
      make_image
    else
      kernel=$(newest_cached)
      if [ -n "$kernel" ]; then
        printf 'softroce: apt-get has no %s; booting what is here: %s\n' \
          "${name:-linux-image-amd64}" "${kernel##*/}" >&2
      else # apt's lists may be too old
        apt update || true
        name=$(newest_kernel)
        { [ -n "$name" ] && download; } ||
          skip "apt-get could not download ${name:-linux-image-amd64}"
        make_image
      fi
    fi
  fi
  exec 7<"$kernel/initramfs"
  flock -s 7 || true
  exec 8<&-
}

download() {
  fresh=$cache/pyrdma-softroce-fetch.$$
  mkdir -p "$fresh/unpacked" "$fresh/done" "$fresh/image/bin" "$fresh/image/modules"
  (cd "$fresh" && apt-get -o APT::Sandbox::User=root download "$name" >&2)
}

make_image() { # makes it from the downloaded package
  dpkg -x "$fresh"/*.deb "$fresh/unpacked" || die "dpkg could not unpack $name; is $cache full?"
  [ -d "$fresh/unpacked/lib" ] || ln -s usr/lib "$fresh/unpacked/lib" # newer packages have /usr only
  version=$(basename "$fresh"/unpacked/lib/modules/*)
  depmod -b "$fresh/unpacked" "$version" || die "depmod fails on lib/modules/$version of $name"
  cp "$(command -v busybox)" "$fresh/image/bin/busybox"
  copy_modules
  cp "$here/init" "$fresh/image/init"
  chmod 755 "$fresh/image/init"
  (cd "$fresh/image" && find . >../files && cpio -o -H newc --quiet <../files >../archive) ||
    die "cpio could not write the initramfs; is $cache full?"
  gzip -1 <"$fresh/archive" >"$fresh/done/initramfs" || die "gzip failed; is $cache full?"
  mv "$fresh"/unpacked/boot/vmlinuz-* "$fresh/done/kernel"
  kernel=$cache/$name-$made_of
  mv -T "$fresh/done" "$kernel" 2>/dev/null || [ -f "$kernel/initramfs" ] ||
    die "$kernel could not be written"
  rm -rf "$fresh"
  for old in "$cache"/linux-image-*-*; do # later runs do not use them; a current run may boot one
    [ "$old" = "$kernel" ] || [ ! -f "$old/initramfs" ] || [ ! -O "$old" ] ||
      flock -n "$old/initramfs" rm -rf "$old" || true
  done
}

copy_modules() {
  : >"$fresh/image/modules/order"
  absent=
  for module in $modules; do
    # modprobe lists the modules in the order of loading; the requested module stands last.
    modprobe -d "$fresh/unpacked" -S "$version" --show-depends "$module" >"$fresh/shown" 2>/dev/null ||
      [ "$module" = crc32_generic ] || absent="$absent $module"
    sed -n 's/^insmod \([^ ]*\).*/\1/p' "$fresh/shown" >"$fresh/list"
    while read -r file; do
      name_of=$(basename "$file")
      [ ! -e "$fresh/image/modules/$name_of" ] || continue
      cp "$file" "$fresh/image/modules/"
      echo "$name_of" >>"$fresh/image/modules/order"
    done <"$fresh/list"
  done
  [ -z "$absent" ] || skip "the kernel $version has no module$absent"
}
