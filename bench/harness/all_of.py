"""every benchmark, one after the other, and a table of their verdicts"""
import json
import subprocess
import sys

from harness.processes import REPO, ends_with_us


def options_of(parser, names):
    parser.add_argument("--traces", metavar="DIR", help="for eviction-traces")
    parser.add_argument("--full", action="store_true", help="for ssd-ablation")
    parser.set_defaults(names=names)


def command(options, name, *words):
    quick = ["--quick"] if options.quick else []
    return ends_with_us([sys.executable, f"{REPO}/scripts/bench", name, "--build", options.build, *quick, *words])


def lines_of(process, echo):
    """What it says, line by line, while it says it."""
    said = []
    try:
        for line in process.stdout:
            echo(line.rstrip("\n"))
            if line.strip():
                said.append(line.rstrip("\n"))
        process.wait()
    finally:
        process.kill()
    return said


def run(options):
    rows = []
    for name in options.names:
        print(f"== {name}", flush=True)
        words = ["--as-built"] if options.as_built else []
        if name == "eviction-traces" and options.traces:
            words += ["--traces", options.traces]
        if name == "ssd-ablation" and options.full:
            words.append("--full")
        process = subprocess.Popen(command(options, name, *words), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said = lines_of(process, lambda line: print(line, flush=True))
        last = said[-1].strip() if said else "it said nothing"
        try:
            verdict = json.loads(last)
        except ValueError:
            rows.append((name, "not run", last))
            continue
        if verdict.get("skipped"):
            rows.append((name, "skipped", "no verdict"))
            continue
        text = f"{verdict['value']} {verdict['unit']}, ratio {verdict['ratio']}, target {verdict['target']}"
        rows.append((name, "met" if verdict["ok"] else "missed", text))
    print()
    for name, state, text in rows:
        print(f"{name:16} {state:8} {text}")
