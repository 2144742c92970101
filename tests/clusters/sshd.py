"""A real sshd on every host of a stage, with keys made for it; ``ssh HOST`` then works as it is."""

import subprocess

from tests.clusters.stage import until

_SSHD = """\
Port 22
ListenAddress {address}
HostKey {keys}/host_key
PidFile {keys}/sshd-{host}.pid
AuthorizedKeysFile {keys}/id.pub
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
UseDNS no
MaxStartups 100
MaxSessions 100
SetEnv TMPDIR={tmp} SHLVL=2
"""
# With SHLVL=2 bash leaves the user's .bashrc alone: what is in there is nothing to rely on.

_SSH = """\
Host *
  User root
  IdentityFile {keys}/id
  IdentitiesOnly yes
  BatchMode yes
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
"""


def start_sshd(stage):
    """Start the daemons; they end with the stage."""
    keys = stage.folder / "ssh"
    keys.mkdir()
    for name in ("host_key", "id"):
        line = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(keys / name)]
        subprocess.run(line, check=True, timeout=20)
    stage.replace_file("/etc/ssh/ssh_config", _SSH.format(keys=keys))
    for host, address in stage.addresses.items():
        config = keys / f"sshd_config-{host}"
        tmp = stage.folder / "tmp"
        config.write_text(_SSHD.format(keys=keys, host=host, address=address, tmp=tmp))
        hide_own = "mkdir -p /run/sshd; [ ! -d ~/.ssh ] || mount -t tmpfs stage ~/.ssh"
        stage.run(["sh", "-c", hide_own], host=host, check=True)
        line = ["/usr/sbin/sshd", "-f", str(config), "-E", str(keys / f"sshd-{host}.log")]
        stage.run(line, host=host, check=True)
    for host in stage.addresses:
        until(lambda host=host: stage.run(["ssh", host, "true"]).returncode == 0, f"{host} answers")
