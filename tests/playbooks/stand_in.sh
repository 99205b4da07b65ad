# Stands in for `pyrdma bundle`, in a moment: prints the path of an archive whose program says what it was told.
#
#   sh stand_in.sh TEXT --glibc VERSION --out FOLDER --python VERSION [--controller]
#
# TEXT makes archives differ. The program answers the words that the playbooks use.
set -eu
text=$1 out=$5
shift 6
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/content/bin" "$out"
cat >"$work/content/bin/pyrdma" <<'PROGRAM'
#!/bin/sh
case $1 in
  devices) cat /etc/pyrdma-devices.json ;;
  daemon) # pyrdma daemon --listen ADDRESS:PORT --token-file FILE
    ulimit -l >/tmp/daemon-memlock
    [ "$(stat -c '%a %U' "$5")" = "600 $(id -un)" ] || exit 3
    exec sleep 1000000
    ;;
  run) # pyrdma run ID --fabric FABRIC --inventory FILE --out FOLDER [SECONDS]
    mkdir -p "$8/$2/$4@bed/points"
    cp "$6" "$8/$2/$4@bed/points/0123456789abcdef0123.jsonl"
    echo '{}' >"$8/$2/$4@bed/run.json"
    sleep "${9:-0}"
    ;;
esac
PROGRAM
echo "$* $text" >"$work/content/text"
chmod -R u=rwX,go=rX "$work/content"
chmod 755 "$work/content/bin/pyrdma"
tar -C "$work/content" --sort=name --mtime=@0 --owner=0 --group=0 -cf - . | gzip -n >"$work/archive"
digest=$(sha256sum "$work/archive" | cut -c 1-20)
mv "$work/archive" "$out/$digest.tar.gz"
echo "$out/$digest.tar.gz"
