"""gets by Zipf from memory and SSD, io_uring against psync, 32 pairs"""
from harness.disk import disk_folder
from harness.processes import SSD_DAEMONS, Failed, build
from harness.rounds import median, verdict
from harness.ssd_cluster import SsdCluster


def options_of(parser):
    parser.add_argument("--full", action="store_true", help="the full sizes: 80 minutes")


def run(options):
    """io_uring against threads with pread, everything else being the same: the owner and its memory, the disk, the keys of each thread."""
    build(options, *SSD_DAEMONS, "bench_ssd_tier")
    quick = options.quick
    # MiB of the segment, of the values and of the SSD; seconds of a window and before it; windows of each side.
    segment, data, ssd, seconds, warm, windows = (1024, 1280, 2048, 1.5, 0.5, 2)
    if options.full:
        segment, data, ssd, seconds, warm, windows = (2048, 2560, 16384, 30, 5, 1)
    elif quick:
        segment, data, ssd, seconds, warm, windows = (512, 640, 1024, 0.5, 0.2, 2)
    sides, cases = ("io_uring", "psync"), [(form, threads) for form in ("holder", "bytes") for threads in (2, 4, 8, 16)]
    ratios = []
    with disk_folder(options) as folder, SsdCluster(options, folder, segment, ssd) as cluster:
        for mib in (1, 4, 8, 16):
            size, values = (mib << 20) - 128, data // mib
            got = {}
            for turn in range(windows):
                for side in sides if turn % 2 == 0 else sides[::-1]:
                    cluster.restart_ssdd(f'backend = "{side}"')
                    cluster.fill(size, values)
                    for case in cases:
                        form, threads = case
                        window = cluster.clients("walk", size, values=values, threads=threads, warm=warm, seconds=seconds, form=form)
                        got.setdefault((side, case), []).append(window)
            for case in cases:
                uring, psync = ([sum(column) / windows for column in zip(*got[side, case])] for side in sides)
                if uring[6] or psync[6]:
                    raise Failed(
                        f"{mib} MiB, {case}: {uring[6]:.0f} and {psync[6]:.0f} hits that came neither from memory nor from the SSD"
                    )
                hits, from_ssd = (
                    [each(*side[4:]) for side in (uring, psync)]
                    for each in (
                        lambda memory, ssd, _, missed: (memory + ssd) / (memory + ssd + missed),
                        lambda memory, ssd, *_: ssd / (memory + ssd),
                    )
                )
                note = "".join(
                    f"; {what} differ"
                    for what, (a, b), most in (("hit ratios", hits, 0.001), ("sources", from_ssd, 0.02))
                    if abs(a - b) > most
                )
                ratios.append(uring[0] / psync[0])
                print(
                    f"{mib:2} MiB {case[0]:6} c{case[1]:<2} {uring[0]:5.2f} and {psync[0]:5.2f} GB/s: {ratios[-1]:.2f}; "
                    f"p95 {uring[2]:.0f} and {psync[2]:.0f} us: {uring[2] / psync[2]:.2f}; hits {hits[0]:.3f} and {hits[1]:.3f}, "
                    f"of them from the SSD {from_ssd[0]:.3f} and {from_ssd[1]:.3f}, unknown 0{note}",
                    flush=True,
                )
    print(
        f"{len(ratios)} pairs, io_uring / psync: {min(ratios):.2f} to {max(ratios):.2f}; psync is a backend of this ssdd, "
        "so ratios that others publish against theirs cannot be compared with these"
    )
    verdict(
        "ssd-ablation",
        len(ratios),
        "pairs",
        median(ratios),
        "the psync backend, same keys in each thread; the median of the pairs",
        "none",
        True,
        digits=0,
    )
