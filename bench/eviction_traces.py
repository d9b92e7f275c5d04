"""hit ratio of the eviction policy on recorded traces, against LRU and S3-FIFO"""
import os

from harness.processes import REPO, build, run_program


def options_of(parser):
    shared = os.path.join(os.path.dirname(REPO), "shared", "traces")
    parser.add_argument(
        "--traces",
        metavar="DIR",
        type=os.path.abspath,
        default=os.environ.get("FLUXON_TRACES") or shared,
        help="folder of the traces (default: $FLUXON_TRACES, or shared/traces beside the repository)",
    )


def run(options):
    build(options, "bench_eviction_traces")
    run_program(options, "bench_eviction_traces", options.traces)
