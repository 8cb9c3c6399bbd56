"""A real Slurm cluster in one folder: pretend nodes and GPUs.

It has two nodes, reads nothing in /etc, starts no service, and does not need root. Nodes are named
like loopback addresses, so that processes find each other by the names of their nodes. GPUs are
links to /dev/null: Slurm counts and assigns them, but nothing can be computed on them.
"""

import contextlib
import os
import pwd
import random
import shutil
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from string import Template

CONFIGURATION = Path(__file__).with_name("slurm.conf")
SLURM = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol")
NODES = ("127.0.0.1", "127.0.0.2")
GPUS = 8
PATH = os.environ["PATH"] + ":/usr/sbin:/sbin"


def missing_programs() -> list[str]:
    """Programs that must be installed before a cluster can start."""
    return [name for name in SLURM if shutil.which(name, path=PATH) is None]


class PretendCluster:
    """Daemons that find each other through the slurm.conf of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder  # short: the names of sockets end at 107 letters
        self.port = _free_ports(1 + len(NODES))
        self.conf = folder / "slurm.conf"
        self.environment = {**os.environ, "SLURM_CONF": str(self.conf), "PATH": PATH}

    def start(self) -> None:
        """Start the cluster and wait until every node is ready."""
        for name in ("log", "state", "spool", "gpu", "munge"):
            (self.folder / name).mkdir(exist_ok=True)
        for number in range(GPUS):
            (self.folder / f"gpu/{number}").symlink_to("/dev/null")
        (self.folder / "gres.conf").write_text(f"Name=gpu File={self.folder}/gpu/[0-{GPUS - 1}]\n")
        self.conf.write_text(self._configuration())
        munge = self.folder / "munge"
        (munge / "key").write_bytes(os.urandom(128))
        (munge / "key").chmod(stat.S_IRUSR | stat.S_IWUSR)
        options = [f"--socket={munge}/socket", f"--log-file={self.folder}/log/munged"]
        options += [f"--{name}-file={munge}/{name}" for name in ("key", "pid", "seed")]
        self._run("munged", "--force", *options)
        self.start_controller()
        for node in NODES:
            self.start_node(node)
        self.wait_for_nodes()

    def wait_for_nodes(self) -> None:
        args = ("sinfo", "-hN", "-p", "low", "-t", "idle", "-o", "%N")
        self._until("nodes", lambda: self.tell(*args).count("\n") >= len(NODES))

    def start_controller(self) -> None:
        """Start the controller, also after `stop_controller`; in between, jobs keep running."""
        self._run("slurmctld")
        self._until("slurmctld", lambda: "UP" in self.tell("scontrol", "ping"))

    def stop_controller(self) -> None:
        """End the controller, as if its machine had failed."""
        for pid in self.processes("slurmctld"):
            os.kill(pid, signal.SIGTERM)
        self._until("the end of slurmctld", lambda: not self.processes("slurmctld"))

    def kill(self, *pids: int) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def start_node(self, node: str) -> None:
        """Start a node, also again after its failure."""
        self._run("slurmd", "-N", node)

    def stop(self) -> None:
        """Cancel all jobs, then end every daemon and leftover processes of jobs."""
        if self.processes("slurmctld"):
            with contextlib.suppress(subprocess.SubprocessError):
                self.tell("scancel", "--me")
                self._until("the end of jobs", lambda: not self.tell("squeue", "-h"), 12)
        for name in ("slurmstepd", "slurmd", "slurmctld", "munged", ""):
            for number in (signal.SIGTERM, signal.SIGKILL):
                for pid in self.processes(name):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, number)
                with contextlib.suppress(TimeoutError):
                    self._until(name, lambda name=name: not self.processes(name), 8)  # type: ignore[misc]

    def tell(self, *args: str) -> str:
        """Return the output of one of Slurm's programs; CalledProcessError on failure."""
        completed = subprocess.run(
            args, env=self.environment, capture_output=True, text=True, timeout=30, check=True
        )
        return completed.stdout

    def processes(self, name: str = "") -> list[int]:
        """Return ids of this cluster's processes, of one program or all.

        Jobs are included.
        """
        mine = f"SLURM_CONF={self.conf}".encode()
        result = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if name and (folder / "comm").read_text().strip() != name:
                    continue
                if mine in (folder / "environ").read_bytes().split(b"\0"):
                    result.append(int(folder.name))
        return [pid for pid in result if pid != os.getpid()]

    def _configuration(self) -> str:
        """Return slurm.conf of this folder, user and machine."""
        loopback = socket.gethostbyname(socket.gethostname()).startswith("127.")
        return Template(CONFIGURATION.read_text()).substitute(
            folder=self.folder,
            user=pwd.getpwuid(os.getuid()).pw_name,
            host=socket.gethostname().partition(".")[0],
            listen="CommunicationParameters=NoInAddrAny,NoCtldInAddrAny" if loopback else "",
            port=self.port,
            node_ports=f"{self.port + 1}-{self.port + len(NODES)}",
            nodes=len(NODES),
            gpus=GPUS,
        )

    def _run(self, *args: str) -> None:
        """Start a daemon.

        Errors are in its log.
        """
        completed = subprocess.run(
            args,
            env=self.environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # a pipe would stay open as long as the daemon
            stderr=subprocess.DEVNULL,
            timeout=60,
        )
        if completed.returncode:
            raise RuntimeError(f"{args[0]} has ended with {completed.returncode}\n{self._logs()}")

    def _until(self, condition: str, true: Callable[[], bool], limit_s: float = 60.0) -> None:
        until = time.monotonic() + limit_s
        while True:
            with contextlib.suppress(subprocess.SubprocessError):
                if true():
                    return
            if time.monotonic() > until:
                raise TimeoutError(f"{condition}: not within {limit_s} s\n{self._logs()}")
            time.sleep(0.1)

    def _logs(self) -> str:
        files = sorted((self.folder / "log").glob("*"))
        return "\n".join(f"{f.name}: {f.read_text(errors='replace')[-600:]}" for f in files)


@contextlib.contextmanager
def pretend_cluster(folder: Path) -> Iterator[PretendCluster]:
    """A started cluster, which is removed in any case."""
    cluster = PretendCluster(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def _free_ports(count: int) -> int:
    """Return the first of `count` consecutive ports, below the jobs' range."""
    while True:
        first = random.randrange(10_000, 19_000, 100)
        with contextlib.ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    stack.enter_context(socket.socket()).bind(("", port))
            except OSError:
                continue
            return first
