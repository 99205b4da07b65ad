# Starts the driver as a transient unit, which outlives this session.
#
#   sh -s -- USER DESCRIPTION COMMAND...
set -eu
user=$1 description=$2
shift 2
systemctl stop pyrdma-run.service 2>/dev/null || true
systemctl reset-failed pyrdma-run.service 2>/dev/null || true
systemd-run --quiet --unit=pyrdma-run.service --description="$description" --property=User="$user" \
  --property=StateDirectory=pyrdma --property=WorkingDirectory=/var/lib/pyrdma \
  --property=RemainAfterExit=yes --property=LimitMEMLOCK=infinity --property=NoNewPrivileges=yes "$@"
