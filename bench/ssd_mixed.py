"""get of 64 KiB to 16 MiB from the SSD while puts are persisted at full rate, against the same gets alone"""
import contextlib
import itertools
import time

from harness.disk import disk_folder
from harness.processes import SSD_DAEMONS, build
from harness.rounds import median, median_ratio, verdict
from harness.ssd_cluster import SsdCluster


def run(options):
    build(options, *SSD_DAEMONS, "bench_ssd_tier")
    quick = options.quick
    rounds, mib = (3, 256) if quick else (7, 512)
    cells = [("64 KiB", 65536, 32), ("1 MiB", 1 << 20, 8), ("4 MiB", 4 << 20, 4), ("16 MiB", 16 << 20, 4)]
    worst = (0.0, 0.0)
    # What is put during a round must not overwrite what is got in it.
    with disk_folder(options) as folder, SsdCluster(options, folder, mib * 2, mib * 24) as cluster:
        seeds, rates = itertools.count(1), []

        @contextlib.contextmanager
        def persisting():
            with cluster.putting(size):
                begun, before = time.monotonic(), cluster.metric("n1", "fluxon_owner_ssd_persisted_bytes_total")
                yield
                bytes_ = cluster.metric("n1", "fluxon_owner_ssd_persisted_bytes_total") - before
                rates.append(bytes_ / (time.monotonic() - begun) / 1e9)

        def beside_persists():
            got = cluster.load(size, values, clients, next(seeds), persisting())
            cluster.settle()
            return got

        def alone():
            cluster.fill(size, values)
            return cluster.load(size, values, clients, next(seeds))

        for name, size, clients in cells:
            values = (mib << 20) // size // (4 if size < 1 << 20 else 1)
            rates.clear()
            cluster.evict()
            free, loaded = [], []
            for _ in range(rounds):
                free.append(alone())
                loaded.append(beside_persists())
            show = [
                ", ".join(
                    (
                        f"{median([each[0] for each in got]):.2f} GB/s",
                        *(f"{word} {median([each[i] for each in got]):.0f} us" for word, i in (("p50", 1), ("p99", 3))),
                    )
                )
                for got in (free, loaded)
            ]
            ratio = median_ratio([each[3] for each in loaded], [each[3] for each in free])
            print(
                f"{name:>6}: {clients:2} gets at a time alone {show[0]}; beside persists of {median(rates):.2f} GB/s {show[1]}; "
                f"p99 {ratio:.2f} times",
                flush=True,
            )
            worst = max(worst, (ratio, median([each[3] for each in loaded])))
    ratio, p99 = worst
    verdict(
        "ssd-mixed", p99, "us", ratio, "p99 of the same loads without persists; the worst of 64 KiB, 1, 4, 16 MiB", "none", True, digits=0
    )
