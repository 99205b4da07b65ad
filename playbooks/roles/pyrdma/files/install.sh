# Unpacks a release once, and makes it the current one.
#
#   sh -s -- DIGEST
#
# The archive is /opt/pyrdma/DIGEST.tar.gz. A release appears at once, by a rename.
set -eu
digest=$1
cd /opt/pyrdma
trap 'rm -rf ".$digest.new" "$digest.tar.gz"' EXIT
if [ ! -d "$digest" ]; then
  rm -rf ".$digest.new"
  mkdir -m 755 ".$digest.new"
  tar -xzf "$digest.tar.gz" -C ".$digest.new" --no-same-owner
  [ -x ".$digest.new/bin/pyrdma" ] || { echo "the archive has no bin/pyrdma" >&2; exit 1; }
  mv -T ".$digest.new" "$digest"
fi
ln -s "$digest" .current.new
mv -T .current.new current
