#!/usr/bin/env bash
# Installs the daemons that `make test-clusters` runs jobs on, from Debian's or Ubuntu's packages. Quick when all are there.
# No daemon is started: the tests start their own, inside of namespaces, and stop them.
set -euo pipefail

commands=(ssh sshd ip unshare mpirun.openmpi mpiexec.hydra munged slurmctld slurmd sbatch qsub sge_qmaster sge_execd)
packages=(
  openssh-client openssh-server iproute2 util-linux openmpi-bin mpich munge slurm-wlm
  gridengine-master gridengine-exec gridengine-client
)

missing() {
  local command
  for command in "${commands[@]}"; do
    PATH="$PATH:/usr/sbin:/sbin:/usr/lib/gridengine" command -v "$command" >/dev/null || echo "$command"
  done
}

left=$(missing | xargs)
[ -n "$left" ] || exit 0
if [ "$(id -u)" != 0 ]; then
  echo "install_clusters: needs root to install packages; missing: $left" >&2
  exit 1
fi
if ! command -v apt-get >/dev/null; then
  echo "install_clusters: there is no apt-get here; missing: $left" >&2
  exit 1
fi

policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
  # Without it the packages would start their daemons, with their own configuration.
  printf '#!/bin/sh\nexit 101\n' >$policy
  chmod 755 $policy
  trap 'rm -f $policy' EXIT
fi
log=$(mktemp)
export DEBIAN_FRONTEND=noninteractive
if ! { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${packages[@]}"; } >"$log" 2>&1; then
  tail -n 5 "$log" >&2
  echo "install_clusters: apt-get failed (all of it: $log); missing: $left" >&2
  exit 1
fi
rm -f "$log"
left=$(missing | xargs)
if [ -n "$left" ]; then
  echo "install_clusters: the packages lack: $left" >&2
  exit 1
fi
