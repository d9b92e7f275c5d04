"""A folder on a disk, and what fio makes of that disk."""
import contextlib
import json
import os
import shutil
import subprocess
import tempfile

from harness.processes import Failed, ends_with_us


@contextlib.contextmanager
def disk_folder(options):
    """A folder in $FLUXON_BENCH_DISK, or beside the build: not in memory."""
    if not shutil.which("fio"):
        raise Failed("fio is not installed: there is nothing to compare with")
    folder = tempfile.mkdtemp(prefix="fluxon-bench-ssd-", dir=os.environ.get("FLUXON_BENCH_DISK") or options.build)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def disk_file(folder, mib):
    """A file whose blocks are all written: what is timed neither allocates nor reads holes. None: no O_DIRECT there."""
    path = os.path.join(folder, "file")
    with open(path, "wb") as file:
        for _ in range(mib):
            file.write(os.urandom(1 << 20))
        os.fsync(file.fileno())
    try:
        os.close(os.open(path, os.O_RDWR | os.O_DIRECT))
    except OSError:
        return None
    return path


def fio_round(path, size, depth, direction, seconds, memory="mmap"):
    """GB/s, CPU microseconds an operation."""
    run = subprocess.run(
        ends_with_us(
            [
                "fio",
                "--name=round",
                f"--filename={path}",
                "--ioengine=io_uring",
                "--direct=1",
                f"--rw={direction}",
                f"--bs={size}",
                f"--iodepth={depth}",
                "--time_based",
                f"--runtime={int(seconds * 1000)}ms",
                f"--mem={memory}",
                "--output-format=json",
                "--thread",
            ]
        ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        check=True,
    )
    job = json.loads(run.stdout)["jobs"][0]
    side = job["write" if direction == "write" else "read"]
    return side["io_bytes"] / side["runtime"] / 1e6, (job["usr_cpu"] + job["sys_cpu"]) * 10 * side["runtime"] / side["total_ios"]


def fio_beside(cluster, path, size, depth, direction, seconds):
    """GB/s of fio, with fresh memory of the segment's kind: how far its pages lie apart says what a disk's requests look like."""
    memory = os.path.join(cluster.root, "fio")
    with open(memory, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, size * depth)
    rate, _ = fio_round(path, size, depth, direction, seconds, f"mmapshared:{memory}")
    os.unlink(memory)
    return rate
