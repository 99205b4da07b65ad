# Starts the driver as a transient unit, which outlives this session.
#
#   sh -s -- INVENTORY USER DESCRIPTION COMMAND...
#
# INVENTORY is the text of the driver's inventory.
set -eu
umask 022
inventory=$1 user=$2 description=$3
shift 3
mkdir -p /etc/pyrdma
printf '%s' "$inventory" >/etc/pyrdma/hosts.yml.new
mv /etc/pyrdma/hosts.yml.new /etc/pyrdma/hosts.yml
systemctl stop pyrdma-run.service 2>/dev/null || true
systemctl reset-failed pyrdma-run.service 2>/dev/null || true
systemd-run --quiet --unit=pyrdma-run.service --description="$description" --property=User="$user" \
  --property=StateDirectory=pyrdma --property=WorkingDirectory=/var/lib/pyrdma \
  --property=RemainAfterExit=yes --property=LimitMEMLOCK=infinity --property=NoNewPrivileges=yes "$@"
