"""values of 64 KiB to 16 MiB pulled over tcp, against plain blocking sockets"""
from harness.processes import build, run_program


def run(options):
    build(options, "bench_link_tcp")
    run_program(options, "bench_link_tcp")
