"""Programs that a benchmark starts: built before, and ended with it."""
import os
import shutil
import subprocess
import sys

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
READY_SECONDS = 60
DAEMONS = ("fluxon-master", "fluxon-owner")
SSD_DAEMONS = (*DAEMONS, "fluxon-ssdd", "fluxonctl")


class Failed(Exception):
    """One sentence: why the benchmark has no result."""


def ends_with_us(command):
    """The command, which gets SIGTERM when this script has ended, however it did."""
    return ["setpriv", "--pdeathsig", "TERM", *command]


def build(options, *targets):
    if options.as_built:
        return
    if not os.path.exists(os.path.join(options.build, "CMakeCache.txt")):
        generator = ["-G", "Ninja"] if shutil.which("ninja") else []
        subprocess.run(["cmake", "-S", REPO, "-B", options.build, *generator, "-DCMAKE_BUILD_TYPE=Release"], stdout=sys.stderr, check=True)
    subprocess.run(["cmake", "--build", options.build, "--target", *targets], stdout=sys.stderr, check=True)


def daemon(options, name):
    return os.path.join(options.build, "bin", name)


def bench_program(options, name):
    return os.path.join(options.build, "bench", name)


def run_program(options, name, *arguments):
    sys.stdout.flush()
    process = subprocess.Popen(ends_with_us([bench_program(options, name), *arguments]))
    try:
        status = process.wait()
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
    if status != 0:
        raise Failed(f"{name} ended with {status}")
