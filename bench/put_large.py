"""put of 1, 4, 16, 64 MiB, against memcpy of the same bytes"""
from harness.cluster import Cluster
from harness.processes import DAEMONS, build, run_program


def run(options):
    build(options, *DAEMONS, "bench_put_large")
    with Cluster(options, segment="3GiB") as cluster:
        run_program(options, "bench_put_large", "--cluster", cluster.name)
