"""Daemons in a runtime of their own, on one host or as if on two."""
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.request

from harness.processes import READY_SECONDS, Failed, daemon, ends_with_us, run_program


def free_address():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


class Cluster:
    """A master and owners in a private runtime; a context manager that ends and removes all of it.

    With `two_hosts` each owner has a shared memory root of its own: as far as the daemons are concerned it is on another host, and values
    go between them over the loopback. The master is on the first one's host. With a `disk`, a folder, the one owner has an SSD tier of
    `ssd_limit` there, and `ssdd` is a part of its ssdd's configuration.
    """

    def __init__(
        self,
        options,
        owners=("n1",),
        segment="256MiB",
        max_keys=65536,
        two_hosts=False,
        disk=None,
        ssd_limit="2GiB",
        ssdd="",
        segments=None,
    ):
        self.options, self.owners, self.segment, self.max_keys, self.two_hosts = options, owners, segment, max_keys, two_hosts
        self.segments = segments or {}  # of owners whose segment has another size
        self.disk, self.ssd_limit, self.ssdd = disk, ssd_limit, ssdd
        self.pages = {"n1": free_address(), "ssdd": free_address()} if disk else {}
        self.name = f"bench-{os.getpid()}"
        self.processes, self.commands = {}, {}

    def __enter__(self):
        self.root = tempfile.mkdtemp(prefix="fluxon-bench-", dir="/dev/shm")
        self.state = tempfile.mkdtemp(prefix="fluxon-bench-")
        os.environ["FLUXON_SHM_ROOT"] = self.root
        self.roots = {owner: os.path.join(self.root, owner) if self.two_hosts else self.root for owner in self.owners}
        self.configs = {owner: os.path.join(self.state, f"{owner}.toml") for owner in self.owners}
        self.config = self.configs[self.owners[0]] if self.owners else os.path.join(self.state, "fluxon.toml")
        self.configure()
        try:
            self.start("master", "fluxon-master")
            for owner in self.owners:
                self.start(owner, "fluxon-owner", "--node", owner)
            if self.disk:
                self.start("ssdd", "fluxon-ssdd", "--node", self.owners[0])
        except BaseException:
            self.__exit__()
            raise
        return self

    def configure(self):
        common = master = owner = ""
        if self.two_hosts:
            secret = os.path.join(self.state, "secret")
            with open(os.open(secret, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
                file.write(os.urandom(16).hex())
            address = free_address()
            common, master, owner = f'secret_file = "{secret}"', f'listen = "{address}"', 'link = "127.0.0.1:0"'
        ssdd = ""
        if self.disk:
            owner = f'http = "{self.pages["n1"]}"\nlarge_file_paths = ["{self.disk}"]\nlarge_limit_size = ["{self.ssd_limit}"]'
            ssdd = f'[ssdd]\nhttp = "{self.pages["ssdd"]}"\n{self.ssdd}'
        for node, path in (self.configs or {"": self.config}).items():
            there = f'master = "{address}"' if self.two_hosts and path != self.config else ""
            root = self.roots.get(node, self.root)
            os.makedirs(root, 0o700, exist_ok=True)
            with open(path, "w") as file:
                file.write(
                    f"""[common]
cluster = "{self.name}"
shm_root = "{root}"
log_level = "warn"
{common}
{there}
[master]
state_dir = "{self.state}/master"
lease_ms = 10000
{master}
[owner]
segment_size = "{self.segments.get(node, self.segment)}"
max_keys = {self.max_keys}
{owner}
{ssdd}
"""
                )

    def start(self, name, program, *arguments):
        self.commands[name] = [daemon(self.options, program), "--config", self.configs.get(name, self.config), *arguments]
        self.await_ready(name, self.launch(name))

    def launch(self, name):
        """Starts a process, anew if it has ended, and returns what it will say its readiness on."""
        ready, tell = os.pipe()
        self.processes[name] = subprocess.Popen(
            ends_with_us([*self.commands[name], "--ready-fd", str(tell)]),
            pass_fds=[tell],
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
        )
        os.close(tell)
        return ready

    def await_ready(self, name, ready):
        readable, _, _ = select.select([ready], [], [], READY_SECONDS)
        said = os.read(ready, 1) if readable else b""
        os.close(ready)
        if said != b"\n":
            raise Failed(f"{name} did not become ready")

    def metric(self, name, metric):
        """The sum of a metric of n1 or ssdd over its labels."""
        with urllib.request.urlopen(f"http://{self.pages[name]}/metrics", timeout=READY_SECONDS) as page:
            lines = page.read().decode().splitlines()
        found = [float(line.rpartition(" ")[2]) for line in lines if line.partition(" ")[0].partition("{")[0] == metric]
        if not found:
            raise Failed(f"no metric {metric} of {name}")
        return sum(found)

    def pid(self, name):
        return self.processes[name].pid

    def __exit__(self, *_):
        for process in reversed(self.processes.values()):
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.rmtree(self.state, ignore_errors=True)


def on_two_hosts(options, name, segment, far=None):
    """Runs a program of bench/ beside two owners, near and far, as if each were on a host of its own."""
    with Cluster(options, owners=("near", "far"), segment=segment, two_hosts=True, segments={"far": far or segment}) as cluster:
        roots = [word for owner in cluster.owners for word in (f"--{owner}-root", cluster.roots[owner])]
        drain = f"{daemon(options, 'fluxonctl')} --config {cluster.config} drain near --no-wait >&2"
        run_program(options, name, "--cluster", cluster.name, *roots, "--drain", drain)
