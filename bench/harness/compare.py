"""one benchmark with two builds in turns: for each figure the median and the range of both, and their ratio

Each side is the daemons and the program of its own build directory, so the two need not understand each other. Runs take turns, and
the side that begins changes with each round. A figure is what differs between runs in a line that is the same otherwise; the ratio is
after / before.
"""
import argparse
import json
import os
import re
import statistics
import subprocess

from harness.all_of import command, lines_of
from harness.processes import Failed

NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e-?\d+)?(?![\w])")


def options_of(parser, names):
    parser.add_argument("benchmark", choices=names, metavar="BENCHMARK", help="one of those that scripts/bench --help names")
    parser.add_argument(
        "--before", metavar="DIR", type=os.path.abspath, required=True, help="build directory of the other side; used as it is"
    )
    parser.add_argument("--rounds", metavar="N", type=int, default=5, help="runs of each side (default: 5)")


def figures(line):
    return [float(number) for number in NUMBER.findall(line)]


def show(values):
    return f"{statistics.median(values):.4g} ({min(values):.4g} to {max(values):.4g})"


def run(options):
    sides = {"before": options.before, "after": options.build}
    runs = {side: [] for side in sides}
    for turn in range(options.rounds):
        for side in list(sides)[:: 1 if turn % 2 == 0 else -1]:
            given = argparse.Namespace(build=sides[side], quick=options.quick)
            words = [] if side == "after" and not options.as_built else ["--as-built"]
            process = subprocess.Popen(command(given, options.benchmark, *words), stdout=subprocess.PIPE, text=True)
            said = lines_of(process, lambda line: None)
            if process.returncode != 0:
                raise Failed(f"{options.benchmark} of {sides[side]} ended with {process.returncode}")
            runs[side].append({NUMBER.sub("#", line): line for line in said})
            print(f"{side:6} {said[-1]}", flush=True)
    print()
    everywhere = [each for side in sides for each in runs[side]]
    shapes = [shape for shape in everywhere[0] if all(shape in each for each in everywhere)]
    for shape in shapes:
        if shape.startswith("{"):
            continue
        columns = {side: list(zip(*(figures(each[shape]) for each in runs[side]))) for side in sides}
        print(everywhere[0][shape])
        for before, after in zip(columns["before"], columns["after"]):
            if len({*before, *after}) > 1:
                ratio = statistics.median(after) / statistics.median(before) if statistics.median(before) else float("nan")
                print(f"    {show(before)} -> {show(after)}: {ratio:.3f}")
    values = {side: [json.loads(list(each.values())[-1]) for each in runs[side]] for side in sides}
    medians = {side: statistics.median(each["value"] for each in values[side]) for side in sides}
    print(
        json.dumps(
            {
                "bench": options.benchmark,
                "before": medians["before"],
                "after": medians["after"],
                "unit": values["after"][0]["unit"],
                "ratio": round(medians["after"] / medians["before"], 3) if medians["before"] else None,
                "rounds": options.rounds,
            }
        )
    )
