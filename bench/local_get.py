"""get from shared memory of 4 KiB, 1 MiB, 64 MiB, against GET of a local redis-server"""
import os
import shutil
import socket
import subprocess
import tempfile
import time

from harness.cluster import Cluster
from harness.processes import DAEMONS, READY_SECONDS, Failed, build, ends_with_us, run_program


class Redis:
    """A redis-server that keeps nothing on disk and listens on a unix socket alone."""

    def __enter__(self):
        if not shutil.which("redis-server"):
            raise Failed("redis-server is not installed: there is nothing to compare with")
        self.folder = tempfile.mkdtemp(prefix="fluxon-bench-redis-")
        self.socket = os.path.join(self.folder, "socket")
        self.process = subprocess.Popen(
            ends_with_us(
                ["redis-server", "--save", "", "--appendonly", "no", "--port", "0", "--unixsocket", self.socket, "--dir", self.folder]
            ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        try:
            self.await_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def await_ready(self):
        until = time.monotonic() + READY_SECONDS
        while time.monotonic() < until and self.process.poll() is None:
            with socket.socket(socket.AF_UNIX) as probe:
                try:
                    probe.connect(self.socket)
                    return
                except OSError:
                    time.sleep(0.02)
        raise Failed("redis-server did not become ready")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def run(options):
    build(options, *DAEMONS, "bench_local_get")
    with Cluster(options) as cluster, Redis() as redis:
        run_program(options, "bench_local_get", "--cluster", cluster.name, "--redis", redis.socket)
