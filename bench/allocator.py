"""the master's extent allocator: fill and time of a call"""
from harness.processes import build, run_program


def run(options):
    build(options, "bench_allocator")
    run_program(options, "bench_allocator")
