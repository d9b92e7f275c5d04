"""start and done of puts in batches of 128, per CPU second of the master"""
from harness.cluster import Cluster
from harness.processes import build, run_program


def run(options):
    build(options, "fluxon-master", "bench_master_ops")
    with Cluster(options, owners=()) as cluster:
        run_program(options, "bench_master_ops", "--cluster", cluster.name, "--pid", str(cluster.pid("master")))
