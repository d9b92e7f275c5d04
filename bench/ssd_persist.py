"""values of 64 KiB to 16 MiB written to the SSD while puts run ahead, against fio"""
import time

from harness.disk import disk_file, disk_folder, fio_beside, fio_round
from harness.processes import SSD_DAEMONS, build
from harness.rounds import median, median_ratio, take_turns, verdict
from harness.ssd_cluster import SsdCluster


def run(options):
    build(options, *SSD_DAEMONS, "bench_ssd_tier")
    quick = options.quick
    seconds, rounds, mib = (0.5, 3, 512) if quick else (1, 7, 1024)
    # fio's depth: what ssdd has at most in its engine, 32 writes or 32 MiB.
    cells = [("64 KiB", 65536, 32), ("1 MiB", 1 << 20, 32), ("4 MiB", 4 << 20, 8), ("16 MiB", 16 << 20, 2)]
    worst = (9e9, 0.0)
    with disk_folder(options) as folder, SsdCluster(options, folder, 512, mib * 2) as cluster:
        path = disk_file(folder, mib)

        def persist():
            """GB/s, and how many values waited at the end."""
            with cluster.putting(size):
                begun, before = time.monotonic(), cluster.metric("n1", "fluxon_owner_ssd_persisted_bytes_total")
                time.sleep(seconds)
                bytes_, took = cluster.metric("n1", "fluxon_owner_ssd_persisted_bytes_total") - before, time.monotonic() - begun
                waiting = cluster.metric("n1", "fluxon_owner_ssd_persists")
            cluster.settle()
            return bytes_ / took / 1e9, waiting

        for name, size, depth in cells:
            cluster.evict()
            ours, shared, anonymous = take_turns(
                rounds,
                persist,
                lambda: fio_beside(cluster, path, size, depth, "write", seconds),
                lambda: fio_round(path, size, depth, "write", seconds)[0],
            )
            rates = [rate for rate, _ in ours]
            ratio, rate = median_ratio(rates, shared), median(rates)
            print(
                f"{name:>6}: {rate:.2f} GB/s, {median([waiting for _, waiting in ours]):.0f} values put and not yet persisted; "
                f"fio, depth {depth:2}, {median(shared):.2f} GB/s, "
                f"ratio {ratio:.3f}; in memory of its own {median(anonymous):.2f} ({min(anonymous):.2f} to {max(anonymous):.2f}), "
                f"{median_ratio(rates, anonymous):.3f}",
                flush=True,
            )
            if size >= 1 << 20:
                worst = min(worst, (ratio, rate))
        lost = {each: cluster.metric("n1", f"fluxon_owner_ssd_persists_{each}_total") for each in ("given_up", "failed", "ignored")}
        print("not persisted: " + ", ".join(f"{count:.0f} {each.replace('_', ' ')}" for each, count in lost.items()))
    ratio, rate = worst
    verdict(
        "ssd-persist",
        rate,
        "GB/s",
        ratio,
        "fio write, io_uring, direct, memory in /dev/shm, same disk and size; the worst of 1, 4, 16 MiB",
        ">= 0.9",
        ratio >= 0.9,
    )
