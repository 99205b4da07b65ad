"""Hosts on this machine: namespaces with an own root, name, two networks and sshd; for root.

    with bed.Hosts(4) as hosts:
        hosts.inventory          # an inventory file of Ansible, which `pyrdma --inventory` takes
        hosts[0].run("hostname") # a command in the host, without ssh
        hosts[0].unplug("experiment")

`python -m tests.hosts` makes hosts for use by hand. Each host has an overlay root over /, so that
it has this machine's programs and files, and its writes end with it. The driver, this machine,
reaches the login network alone. The kernel ends everything when the process that made the hosts
ends, even by ``kill -9``: a host is a process namespace whose first process dies with its parent.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import yaml

from tests.hosts.commands import children, dies_with_this, end_process, ip, make_key, start
from tests.hosts.folders import cgroups, remove, take_folder

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
NETWORKS = ("login", "experiment")
PROGRAMS = ("ip", "mount", "nsenter", "pivot_root", "setpriv", "ssh", "ssh-keygen", "unshare")
SSHD, SYSTEMD = Path("/usr/sbin/sshd"), Path("/lib/systemd/systemd")
MOST_HOSTS = 250
"""Most hosts of a bed, which fit a network of 8 bits."""
START_S = 60
UNITS = {
    "hosts.target": "[Unit]\nRequires=basic.target\nWants=hosts-sshd.service\nAfter=basic.target\n",
    "hosts-sshd.service": f"""\
[Unit]
Wants=systemd-user-sessions.service
After=systemd-user-sessions.service
[Service]
ExecStart={SSHD} -D -f /etc/ssh/hosts_sshd_config -E /var/log/sshd.log
KillMode=process
""",
}
SSHD_CONFIG = """\
Port 22
HostKey /etc/ssh/hosts_key
AuthorizedKeysFile /etc/ssh/hosts_authorized_keys
PasswordAuthentication no
PermitRootLogin prohibit-password
UsePAM yes
UseDNS no
StrictModes no
MaxStartups 200
PidFile none
Subsystem sftp internal-sftp
"""


def why_not_here(systemd: bool = False) -> str:
    """Return why no hosts, or none with systemd, can be made here; empty if they can."""
    if os.geteuid() != 0:
        return "namespaces with an own root need root"
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    missing += [path.name for path in (SSHD, *([SYSTEMD] if systemd else [])) if not path.exists()]
    if missing:
        words = "apt-get install -y openssh-server openssh-client iproute2 util-linux mount systemd"
        return f"missing: {', '.join(missing)}; {words}"
    if systemd and cgroups() is None:
        return "systemd needs version 2 of the control groups, and no folder of them can be written"
    done = subprocess.run(
        ["unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr.strip()


class Host:
    """One host. `address` is the experiment network's, `login` that of the driver's network."""

    def __init__(self, bed: Hosts, number: int, process: subprocess.Popen[str]) -> None:
        self.number, self.name = number, f"node-{number}"
        self.login = f"10.98.{2 * bed.number}.{number + 1}"
        self.address = f"10.98.{2 * bed.number + 1}.{number + 1}"
        self._bed, self._process = bed, process
        self._pid = 0

    @property
    def pid(self) -> int:
        """The host's first process, as this machine numbers it."""
        if not self._pid:
            self._pid = children(self._process.pid)[0]
        return self._pid

    @property
    def root(self) -> Path:
        """The host's files, as this machine sees them, while the host lives."""
        return Path("/proc", str(self.pid), "root")

    @property
    def _enters(self) -> list[str]:
        kinds = ("--mount", "--uts", "--ipc", "--net", "--pid")
        return ["nsenter", *kinds, "--target", str(self.pid), "--wd=/"]

    def run(
        self, *command: str, check: bool = True, timeout_s: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the host as its root, without ssh, and return its output."""
        return subprocess.run(
            [*self._enters, *command],
            capture_output=True,
            text=True,
            check=check,
            timeout=timeout_s,
        )

    def processes(self) -> dict[int, str]:
        """Return the processes that run in the host: this machine's number, the command line.

        Those of the bed itself, the first process and its sleep, are left out; sshd is in.
        """
        found = {}
        for pid in self._pids():
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                command = b" ".join(words).decode(errors="replace").strip()
                if pid != self.pid and command not in ("", "sleep infinity"):
                    found[pid] = command
        return found

    def _pids(self) -> list[int]:
        namespace = Path(f"/proc/{self.pid}/ns/pid").readlink()
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if (entry / "ns/pid").readlink() == namespace:
                        found.append(int(entry.name))
        return found

    def unplug(self, network: str) -> None:
        """Pull the host's wire to `network`, which is `login` or `experiment`."""
        self._bed.wire(self, network, "down")

    def plug(self, network: str) -> None:
        """Plug the wire in again."""
        self._bed.wire(self, network, "up")

    def kill_sshd(self) -> None:
        """End sshd and its sessions by ``kill -9``; what the sessions started lives on."""
        deadline = time.monotonic() + START_S
        # A process may be forked while the others are killed.
        while found := [p for p, line in self.processes().items() if "sshd" in line.split()[0]]:
            if time.monotonic() > deadline:
                raise RuntimeError(f"sshd of {self.name} does not end: {found}")
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)

    def start_sshd(self) -> None:
        """Start sshd again."""
        self.run(str(SSHD), "-f", "/etc/ssh/hosts_sshd_config", "-E", "/var/log/sshd.log")

    def die(self) -> None:
        """End the host as a power failure would: all its processes at once."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        end_process(self._process)


class Hosts:
    """`count` hosts named ``node-0``, ``node-1``, ... as a context manager.

    Parameters
    ----------
    count
        Number of hosts.
    disk
        Size of what a host may write, as tmpfs takes it.
    systemd
        Whether systemd is the first process of each host, for tests of units.
    """

    def __init__(self, count: int, *, disk: str = "512m", systemd: bool = False) -> None:
        if not 1 <= count <= MOST_HOSTS:
            raise ValueError(f"{count} hosts; give 1 to {MOST_HOSTS}")
        self._count, self._disk = count, disk
        self._init = str(SYSTEMD) if systemd else ""
        self._hosts: list[Host] = []
        self._switch: subprocess.Popen[str] | None = None

    def __enter__(self) -> Hosts:  # noqa: PYI034 - Self is of Python 3.11
        if reason := why_not_here(bool(self._init)):
            raise RuntimeError(reason)
        self._lock, self.folder, self.number = take_folder()
        try:
            self._make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._hosts)

    def __getitem__(self, index: int) -> Host:
        return self._hosts[index]

    def __iter__(self) -> Iterator[Host]:
        return iter(self._hosts)

    @property
    def inventory(self) -> Path:
        """The inventory of all hosts, an Ansible YAML file."""
        return self.folder / "hosts.yml"

    @property
    def key(self) -> Path:
        """The driver's private key."""
        return self.folder / "key"

    @property
    def known_hosts(self) -> Path:
        """The keys of the hosts."""
        return self.folder / "known_hosts"

    def ssh(self, host: Host, *command: str) -> list[str]:
        """Return the words of an ssh command to the host."""
        options = ("-i", str(self.key), *self._ssh_options(), "-o", "BatchMode=yes")
        return ["ssh", *options, f"root@{host.login}", *command]

    def _ssh_options(self) -> tuple[str, ...]:
        known = f"UserKnownHostsFile={self.known_hosts}"
        return ("-o", known, "-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=yes")

    @property
    def _log(self) -> Path:
        return self.folder / "errors.log"

    def _make(self) -> None:
        self._write_keys()
        starts = (*dies_with_this(), "unshare", "--net")
        self._switch = start(self._log, *starts, "sh", "-c", "echo made; exec sleep infinity")
        isolated = ("--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child=KILL")
        shown = [str(folder) for folder in _shown()]
        for number in range(self._count):
            name = f"node-{number}"
            words = ("sh", str(HERE / "host.sh"), str(self.folder), name, self._disk, self._init)
            group = self._control_group(name) if self._init else ()
            process = start(self._log, *group, *starts, *isolated, *words, *shown)
            self._hosts.append(Host(self, number, process))
        self._expect(self._switch, "made")
        for host in self._hosts:
            self._expect(host._process, "ready")
        self._connect()
        for host in self._hosts:
            self._expect(host._process, "listens")
        if self._init:
            self._wait_for_sshd()
        self._write_inventory()

    def _control_group(self, name: str) -> tuple[str, ...]:
        """Return words that run a command in a control group of its own, as systemd needs it."""
        parent = cgroups()
        assert parent is not None
        group = parent / self.folder.name / name
        group.mkdir(parents=True)
        isolated = """echo $$ >"$0/cgroup.procs"; exec unshare --cgroup "$@\""""
        return (*dies_with_this(), "sh", "-c", isolated, str(group))

    def _wait_for_sshd(self) -> None:
        deadline = time.monotonic() + START_S
        for host in self._hosts:
            while True:
                try:
                    socket.create_connection((host.login, 22), 1).close()
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.05)

    def _expect(self, process: subprocess.Popen[str], word: str) -> None:
        assert process.stdout is not None
        if not select.select([process.stdout], [], [], START_S)[0]:
            raise RuntimeError(f"no host after {START_S} s; {word!r} was expected")
        if (line := process.stdout.readline().strip()) != word:
            said = f"{line!r}, not {word!r}; {self._log.read_text().strip()}"
            raise RuntimeError(f"a host ended while it was made: {said}")

    def _write_keys(self) -> None:
        etc = self.folder / "etc"
        (etc / "ssh").mkdir(parents=True)
        names = [f"node-{number}" for number in range(self._count)]
        making = [make_key(self.key)]
        for name in names:
            (self.folder / f"etc-{name}/ssh").mkdir(parents=True)
            making.append(make_key(self.folder / f"etc-{name}/ssh/hosts_key"))
        for process in making:
            if process.wait() != 0:
                raise RuntimeError("ssh-keygen failed")
        (etc / "ssh/hosts_sshd_config").write_text(SSHD_CONFIG)
        if self._init:
            (etc / "systemd/system").mkdir(parents=True)
            for unit, text in UNITS.items():
                (etc / "systemd/system" / unit).write_text(text)
        shutil.copy(self.key.with_suffix(".pub"), etc / "ssh/hosts_authorized_keys")
        lines, known = ["127.0.0.1 localhost"], []
        for number, name in enumerate(names):
            lines.append(f"10.98.{2 * self.number + 1}.{number + 1} {name}")
            (self.folder / f"etc-{name}/hostname").write_text(f"{name}\n")
            public = (self.folder / f"etc-{name}/ssh/hosts_key.pub").read_text()
            known.append(f"10.98.{2 * self.number}.{number + 1} {public}")
        (etc / "hosts").write_text("\n".join(lines) + "\n")
        self.known_hosts.write_text("".join(known))

    def _connect(self) -> None:
        """Join the hosts by bridges in a namespace of their own, this machine by one of them."""
        wire = f"pyrdma-bed{self.number}"
        ip("link", "delete", wire, check=False)  # of a killed bed, whose namespace is ending
        lines = [f"link add {network} type bridge" for network in NETWORKS]
        lines += [f"link set {network} up" for network in NETWORKS]
        lines += [
            f"link add driver type veth peer name {wire} netns {os.getpid()}",
            "link set driver master login up",
        ]
        for host in self._hosts:
            for network in NETWORKS:
                end, namespace = _end(host, network), host._process.pid
                lines.append(f"link add {end} type veth peer name {network} netns {namespace}")
                lines.append(f"link set {end} master {network} up")
        assert self._switch is not None
        ip("-batch", "-", text=lines, inside=self._switch.pid)
        ip("addr", "add", f"10.98.{2 * self.number}.254/24", "dev", wire)
        ip("link", "set", wire, "up")
        for host in self._hosts:
            assert host._process.stdin is not None
            mine = [
                f"addr add {host.login}/24 dev login",
                f"addr add {host.address}/24 dev experiment",
                *(f"link set {device} up" for device in ("lo", *NETWORKS)),
            ]
            host._process.stdin.write("\n".join(mine) + "\n")
            host._process.stdin.close()

    def wire(self, host: Host, network: str, state: str) -> None:
        """Set a host's wire `up` or `down`."""
        assert self._switch is not None
        ip("link", "set", _end(host, network), state, inside=self._switch.pid)

    def _write_inventory(self) -> None:
        rows = {
            host.name: {
                "ansible_host": host.login,
                "pyrdma_address": host.address,
            }
            for host in self._hosts
        }
        shared = {
            "ansible_user": "root",
            "ansible_port": 22,
            "ansible_ssh_private_key_file": str(self.key),
            "ansible_ssh_common_args": " ".join(self._ssh_options()),
            "ansible_python_interpreter": "/usr/bin/python3",
            "pyrdma_testbed": "namespaces",
        }
        document = {"all": {"hosts": rows, "vars": shared}}
        self.inventory.write_text(yaml.safe_dump(document, sort_keys=False))

    def close(self) -> None:
        """End all hosts and remove what was made for them."""
        for process in self._processes:
            for pid in children(process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for process in self._processes:
            end_process(process)
        if self._switch is not None:
            self._switch.kill()
            end_process(self._switch)
        ip("link", "delete", f"pyrdma-bed{self.number}", check=False)
        remove(self.folder)
        self._lock.close()

    @property
    def _processes(self) -> list[subprocess.Popen[str]]:
        return [host._process for host in self._hosts]


def _end(host: Host, network: str) -> str:
    """Return the name of the bridge's end of a host's wire."""
    if network not in NETWORKS:
        raise ValueError(f"there is no network {network!r}; give one of {NETWORKS}")
    return f"{network[0]}{host.number}"


def _shown() -> list[Path]:
    """Return the folders of this machine that hosts need, and that their own folders would hide."""
    folders = {ROOT, Path(sys.prefix), Path(sys.base_prefix)}
    device = Path("/").stat().st_dev
    hidden = (Path("/tmp"), Path("/run"), Path("~root").expanduser())
    return sorted(
        folder
        for folder in folders
        if folder.stat().st_dev != device or any(folder.is_relative_to(one) for one in hidden)
    )
