"""An owner with an SSD tier, and the clients that fill it and read it."""
import contextlib
import subprocess
import sys
import time

from harness.cluster import Cluster
from harness.processes import READY_SECONDS, Failed, bench_program, daemon, ends_with_us

FILL_BYTES = 32 << 20
PUTTERS = 4  # threads whose puts run ahead of what persists them


class SsdCluster(Cluster):
    """A master, an owner and its ssdd, whose shard files have all their blocks written: what is timed writes into no new extent."""

    def __init__(self, options, folder, segment_mib, ssd_mib, ssdd=""):
        super().__init__(options, segment=f"{segment_mib}MiB", disk=folder, ssd_limit=f"{ssd_mib}MiB", ssdd=ssdd)
        self.ssd_mib = ssd_mib

    def __enter__(self):
        super().__enter__()
        try:
            self.check_direct()
            self.fill(4 << 20, self.ssd_mib // 4 * 9 // 8)
        except BaseException:
            self.__exit__()
            raise
        return self

    def check_direct(self):
        if self.metric("ssdd", "fluxon_ssdd_direct_io") != 1:
            raise Failed(f"no O_DIRECT in {self.disk}: set FLUXON_BENCH_DISK to a folder on a disk")

    def restart_ssdd(self, ssdd):
        """Another ssdd, with nothing on its SSD, beside the same owner, whose memory stays where it is and becomes empty."""
        self.processes["ssdd"].terminate()
        self.processes["ssdd"].wait()
        self.ssdd = ssdd
        self.configure()
        self.await_ready("ssdd", self.launch("ssdd"))
        self.check_direct()
        self.evict()

    def clients(self, what, size, **arguments):
        """Runs bench_ssd_tier and returns the numbers that it prints."""
        process = self.begin(what, size, **arguments)
        try:
            said, _ = process.communicate()
        finally:
            process.kill()
            process.wait()
        if process.returncode != 0:
            raise Failed(f"bench_ssd_tier ended with {process.returncode}")
        return [float(word) for word in said.split()]

    def begin(self, what, size, **arguments):
        words = [word for name, value in arguments.items() for word in (f"--{name}", str(value))]
        return subprocess.Popen(
            ends_with_us(
                [
                    bench_program(self.options, "bench_ssd_tier"),
                    "--cluster",
                    self.name,
                    "--root",
                    self.root,
                    "--do",
                    what,
                    "--bytes",
                    str(size),
                    *words,
                ]
            ),
            stdout=subprocess.PIPE,
            text=True,
        )

    def fill(self, size, values):
        """Puts values, and all of them are on the SSD: never more at once than an owner lets wait for a disk, however slow that is."""
        given_up = self.metric("n1", "fluxon_owner_ssd_persists_given_up_total")
        at_once = max(1, FILL_BYTES // size)
        for first in range(0, values, at_once):
            self.clients("fill", size, first=first, values=min(at_once, values - first))
            self.settle()
        left_out = self.metric("n1", "fluxon_owner_ssd_persists_given_up_total") - given_up
        if left_out:
            raise Failed(f"of {values} values {left_out:.0f} were not persisted")

    def settle(self):
        """Waits for the SSD as long as it takes something."""
        left, until = None, 0
        while (now := self.metric("n1", "fluxon_owner_ssd_persists")) > 0:
            if now != left:
                left, until = now, time.monotonic() + READY_SECONDS
            if time.monotonic() > until:
                raise Failed(f"the disk of {self.disk} has taken none of {now:.0f} values for {READY_SECONDS} s")
            time.sleep(0.01)

    @contextlib.contextmanager
    def putting(self, size):
        """While the context lasts new values are put as fast as they are taken; when it begins the segment is full of them."""
        process = self.begin("put", size, threads=PUTTERS, seconds=READY_SECONDS)
        try:
            process.stdout.readline()
            time.sleep(0.5)
            yield
            process.terminate()
            if process.wait(READY_SECONDS) != 0:
                raise Failed(f"bench_ssd_tier ended with {process.returncode}")
        finally:
            process.kill()
            process.wait()

    def evict(self):
        subprocess.run(
            ends_with_us([daemon(self.options, "fluxonctl"), "--config", self.config, "evict", "--to", "0"]),
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            check=True,
        )

    def load(self, size, values, threads, seed, beside=contextlib.nullcontext()):
        """GB/s, p50, p95, p99 of gets of values that lie on the SSD alone, within a context."""
        self.evict()
        with beside:
            return self.load_evicted(size, values, threads, seed)

    def load_evicted(self, size, values, threads, seed):
        *got, memory, ssd, unknown, missed = self.clients("load", size, values=values, threads=threads, seed=seed)
        if memory or unknown or missed:
            raise Failed(f"of gets {memory:.0f} came from memory, {unknown:.0f} from elsewhere, {missed:.0f} missed")
        return got
