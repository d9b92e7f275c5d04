"""1 GiB of values after the owner, then the master, was killed and started again"""
import subprocess

from harness.cluster import Cluster
from harness.processes import DAEMONS, Failed, bench_program, build, ends_with_us


def available_mib():
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("MemAvailable")) // 1024


def run(options):
    build(options, *DAEMONS, "bench_restart_warm")
    mib = 128 if options.quick else min(1024, available_mib() // 4)
    print(f"{mib} MiB of values (1024, less with --quick or where that is more than a quarter of the memory available)")
    with Cluster(options, segment=f"{mib + mib // 4}MiB") as cluster:
        process = subprocess.Popen(
            ends_with_us([bench_program(options, "bench_restart_warm"), "--cluster", cluster.name, "--node", "n1", "--mib", str(mib)]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        try:
            for line in process.stdout:
                if not line.startswith("kill "):
                    print(line, end="")
                    continue
                name = {"owner": "n1", "master": "master"}[line.split()[1]]
                cluster.processes[name].kill()
                cluster.processes[name].wait()
                ready = cluster.launch(name)
                print("started", file=process.stdin, flush=True)
                cluster.await_ready(name, ready)
            if process.wait() != 0:
                raise Failed(f"bench_restart_warm ended with {process.returncode}")
        finally:
            process.kill()
            process.wait()
