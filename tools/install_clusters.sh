#!/usr/bin/env bash
# Installs the daemons that `make test-clusters` runs jobs on, from Debian's or Ubuntu's packages. Quick when all are there.
# No daemon is started: the tests start their own, inside of namespaces, and stop them.
set -euo pipefail

commands=(ssh sshd ip unshare mpirun.openmpi mpiexec.hydra munged slurmctld slurmd sbatch qsub sge_qmaster sge_execd)
# Each line by itself: where a distribution lacks one, the others are installed all the same.
groups=(
  "openssh-client openssh-server iproute2 util-linux"
  "openmpi-bin"
  "mpich"
  "munge slurm-wlm"
  "gridengine-master gridengine-exec gridengine-client"
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
# Where no server answers, this ends within a minute.
apt=(apt-get -qq -o Acquire::http::Timeout=15 -o Acquire::https::Timeout=15 -o Acquire::Retries=1)
apt+=(-o DPkg::Lock::Timeout=120)
failed=no
timeout 120 "${apt[@]}" update >"$log" 2>&1 || failed=yes
for group in "${groups[@]}"; do
  # shellcheck disable=SC2086 # a group is several words
  timeout 600 "${apt[@]}" install -y --no-install-recommends $group >>"$log" 2>&1 || failed=yes
done
left=$(missing | xargs)
if [ -n "$left" ]; then
  tail -n 5 "$log" >&2
  echo "install_clusters: still missing: $left (all that apt-get said: $log)" >&2
  exit 1
fi
[ $failed = no ] || echo "install_clusters: apt-get complained, and all is there (it said: $log)" >&2
[ $failed = yes ] || rm -f "$log"
