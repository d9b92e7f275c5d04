"""get of 64 KiB to 16 MiB from the other host over tcp, against plain blocking sockets"""
from harness.cluster import on_two_hosts
from harness.processes import DAEMONS, build


def run(options):
    build(options, *DAEMONS, "bench_remote_tcp")
    on_two_hosts(options, "bench_remote_tcp", "768MiB")
