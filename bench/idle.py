"""CPU time of a master and two owners that have nothing to do"""
import os
import subprocess
import time

from harness.cluster import Cluster
from harness.processes import DAEMONS, Failed, build, daemon, ends_with_us
from harness.rounds import verdict


def use_of(pid):
    """CPU seconds and voluntary context switches of all threads of a process since its start."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    cpu = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    ran = switches = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/schedstat") as file:
            ran += int(file.read().split()[0])
        with open(f"/proc/{pid}/task/{task}/status") as file:
            switches += sum(int(line.split()[1]) for line in file if line.startswith("voluntary_ctxt_switches"))
    return {"cpu": cpu, "ran": ran / 1e9, "switches": switches}


def run(options):
    """Master and two owners that nobody asks for anything, one client attached."""
    seconds, limit = 20.0, 0.5
    build(options, *DAEMONS, "fluxonctl")
    with Cluster(options, owners=("n1", "n2")) as cluster:
        # Attached as long as its input is open; its answer says that it is.
        command = [daemon(options, "fluxonctl"), "--config", cluster.config, "--node", "n1", "read"]
        pipe = subprocess.PIPE
        client = subprocess.Popen(ends_with_us(command), stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True)
        print("no such key", file=client.stdin, flush=True)
        if not client.stdout.readline():
            raise Failed("the idle client could not attach")
        time.sleep(3)  # the segments are being populated; that is start-up, not idling
        before = {name: use_of(cluster.pid(name)) for name in cluster.processes}
        begun = time.monotonic()
        time.sleep(seconds)
        took = time.monotonic() - begun
        worst = 0.0
        for name in cluster.processes:
            now, then = use_of(cluster.pid(name)), before[name]
            # schedstat counts nanoseconds, utime + stime clock ticks: the first is the verdict, the second its witness.
            percent = 100 * (now["ran"] - then["ran"]) / took
            ticks = 100 * (now["cpu"] - then["cpu"]) / took
            rate = (now["switches"] - then["switches"]) / took
            print(f"{name:8} {percent:7.3f} % of a core (by clock ticks {ticks:.2f} %), {rate:.1f} voluntary context switches a second")
            worst = max(worst, percent)
        client.stdin.close()
        client.wait()
    verdict(
        "idle",
        worst,
        "% of a core",
        worst / limit,
        "0.5 % of one core, the worst of master and 2 owners",
        "< 0.5 %",
        worst < limit,
        digits=4,
    )
