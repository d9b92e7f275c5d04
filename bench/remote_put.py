"""put of 1, 4, 16 MiB that ends when the other host has it, against a local put and a plain stream"""
from harness.cluster import on_two_hosts
from harness.processes import DAEMONS, build


def run(options):
    build(options, *DAEMONS, "fluxonctl", "bench_remote_put")
    # What shall keep the near node from leaving is larger than the far segment, and lies beside the rest in the near one.
    on_two_hosts(options, "bench_remote_put", "1536MiB", far="640MiB")
