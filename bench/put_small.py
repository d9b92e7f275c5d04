"""put of 4 KiB under a new key, against the round trip of one RPC"""
from harness.cluster import Cluster
from harness.processes import DAEMONS, build, run_program


def run(options):
    build(options, *DAEMONS, "bench_put_small")
    with Cluster(options) as cluster:
        run_program(options, "bench_put_small", "--cluster", cluster.name)
