"""one benchmark with two builds in turns: for each figure the median and the range of both, and their ratio

Each side is the daemons and the program of its own build directory, so the two need not understand each other. Runs take turns, and
the side that begins changes with each round. A figure is what differs between runs in a line that is the same otherwise; the ratio is
after / before. What stands after -- are options of the benchmark itself.
"""
import argparse
import collections
import json
import os
import re
import statistics
import subprocess

from harness.all_of import command, lines_of
from harness.processes import Failed

NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e-?\d+)?(?![\w])")


def positive(word):
    if not word.isdigit() or int(word) == 0:
        raise argparse.ArgumentTypeError(f"'{word}' (accepted: 1 or more)")
    return int(word)


def options_of(parser, names):
    parser.add_argument("benchmark", choices=names, metavar="BENCHMARK", help="one of those that scripts/bench --help names")
    parser.add_argument(
        "--before", metavar="DIR", type=os.path.abspath, required=True, help="build directory of the other side; used as it is"
    )
    parser.add_argument("--rounds", metavar="N", type=positive, default=5, help="runs of each side (default: 5)")


def figures(line):
    return [float(number) for number in NUMBER.findall(line)]


def by_shape(lines):
    """Lines by what they say without figures and padding, and by how often that has been said before in the run."""
    found, seen = {}, collections.Counter()
    for line in lines:
        shape = " ".join(NUMBER.sub("#", line).split())
        found[shape, seen[shape]] = line
        seen[shape] += 1
    return found


def show(values):
    return f"{statistics.median(values):.4g} ({min(values):.4g} to {max(values):.4g})"


def one_run(options, build, words):
    given = argparse.Namespace(build=build, quick=options.quick)
    process = subprocess.Popen(command(given, options.benchmark, *words, *options.rest), stdout=subprocess.PIPE, text=True)
    said = lines_of(process, lambda line: None)
    if process.returncode != 0 or not said:
        raise Failed(f"{options.benchmark} of {build} ended with {process.returncode}")
    try:
        verdict = json.loads(said[-1])
    except ValueError:
        raise Failed(f"{options.benchmark} of {build} has no verdict: {said[-1]}") from None
    if verdict.get("skipped"):
        raise Failed(f"{options.benchmark} of {build} has no verdict: {' '.join(said[:-1])}")
    return by_shape(said[:-1]), verdict


def run(options):
    sides = {"before": options.before, "after": options.build}
    runs = {side: [] for side in sides}
    for turn in range(options.rounds):
        for side in list(sides)[:: 1 if turn % 2 == 0 else -1]:
            words = [] if side == "after" and not options.as_built else ["--as-built"]
            runs[side].append(one_run(options, sides[side], words))
            print(f"{side:6} {json.dumps(runs[side][-1][1])}", flush=True)
    print()
    everywhere = [lines for side in sides for lines, _ in runs[side]]
    left_out = 0
    for shape in dict.fromkeys(shape for lines in everywhere for shape in lines):
        if not all(shape in lines for lines in everywhere):
            left_out += 1
            continue
        print(everywhere[0][shape])
        columns = {side: list(zip(*(figures(lines[shape]) for lines, _ in runs[side]))) for side in sides}
        for before, after in zip(columns["before"], columns["after"]):
            if len({*before, *after}) > 1:
                ratio = statistics.median(after) / statistics.median(before) if statistics.median(before) else float("nan")
                print(f"    {show(before)} -> {show(after)}: {ratio:.3f}")
    if left_out:
        print(f"{left_out} lines are not in every run")
    values = {side: [verdict["value"] for _, verdict in runs[side]] for side in sides}
    medians = {side: statistics.median(each) for side, each in values.items()}
    print(
        json.dumps(
            {
                "bench": options.benchmark,
                "before": medians["before"],
                "before_range": [min(values["before"]), max(values["before"])],
                "after": medians["after"],
                "after_range": [min(values["after"]), max(values["after"])],
                "unit": runs["after"][0][1]["unit"],
                "ratio": round(medians["after"] / medians["before"], 3) if medians["before"] else None,
                "rounds": options.rounds,
            }
        )
    )
