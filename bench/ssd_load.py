"""get of 64 KiB to 16 MiB that lie on the SSD alone, against fio"""
import itertools

from harness.disk import disk_file, disk_folder, fio_beside, fio_round
from harness.processes import SSD_DAEMONS, build
from harness.rounds import median, median_ratio, take_turns, verdict
from harness.ssd_cluster import SsdCluster


def run(options):
    build(options, *SSD_DAEMONS, "bench_ssd_tier")
    quick = options.quick
    seconds, rounds, mib = (0.3, 3, 256) if quick else (1, 7, 1024)
    # Gets at a time: as many as keep the disk's queue as full as fio does with its depth, since part of a get is not the disk's.
    cells = [("64 KiB", 65536, 32, 64), ("1 MiB", 1 << 20, 8, 12), ("4 MiB", 4 << 20, 4, 6), ("16 MiB", 16 << 20, 4, 4)]
    worst = (9e9, 0.0)
    with disk_folder(options) as folder, SsdCluster(options, folder, mib * 5 // 4, mib * 2) as cluster:
        path = disk_file(folder, mib)
        seeds = itertools.count(1)
        for name, size, depth, clients in cells:
            values = (mib << 20) // size // (4 if size < 1 << 20 else 1)
            cluster.fill(size, values)
            ours, shared, anonymous = take_turns(
                rounds,
                lambda: cluster.load(size, values, clients, next(seeds)),
                lambda: fio_beside(cluster, path, size, depth, "randread", seconds),
                lambda: fio_round(path, size, depth, "randread", seconds)[0],
            )
            rates = [rate for rate, *_ in ours]
            p50, p99 = (median([each[i] for each in ours]) for i in (1, 3))
            ratio, rate = median_ratio(rates, shared), median(rates)
            print(
                f"{name:>6}: {clients:2} gets at a time {rate:.2f} GB/s, p50 {p50:.0f} us, p99 {p99:.0f} us; "
                f"fio, depth {depth:2}, {median(shared):.2f} GB/s, "
                f"ratio {ratio:.3f}; in memory of its own {median(anonymous):.2f} ({min(anonymous):.2f} to {max(anonymous):.2f}), "
                f"{median_ratio(rates, anonymous):.3f}",
                flush=True,
            )
            if size >= 1 << 20:
                worst = min(worst, (ratio, rate))
        reads, direct = (cluster.metric("ssdd", f"fluxon_ssdd_reads{each}_total") for each in ("", "_direct"))
        print(f"{reads:.0f} values read, {direct:.0f} of them straight to where they belong")
    ratio, rate = worst
    verdict(
        "ssd-load",
        rate,
        "GB/s",
        ratio,
        "fio randread, io_uring, direct, memory in /dev/shm, same disk and size; the worst of 1, 4, 16 MiB",
        ">= 0.95",
        ratio >= 0.95,
    )
