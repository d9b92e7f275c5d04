#!/usr/bin/env python3
"""Breaks one rule of the protocol at a time and shows that the simulator finds it within its fixed set of seeds.

  mutants.py --build BUILD --seeds 1:2500 [--only NAME... | --every N] [--jobs N]

Each mutant replaces one piece of one source file. The file is compiled as BUILD compiles it for the simulator, and linked before the
library that has it. A mutant that no seed finds, or whose piece is not there any more, fails the script.
"""
import argparse
import concurrent.futures
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time

MASTER, OWNER, SSDD, RING = "tools/fluxon-master/", "tools/fluxon-owner/", "tools/fluxon-ssdd/", "tools/fluxon-ssdd/storage/shard_ring.cpp"
# Name, file, piece, what stands there instead.
MUTANTS = [
    (
        "a change does not wait for invalidations",
        MASTER + "changes.cpp",
        "if (others.empty()) return finish(entry, now);",
        "return finish(entry, now);",
    ),
    (
        "a change does not wait for an owner whose connection is lost",
        MASTER + "changes.cpp",
        "if (&member == except || member.lives()) return &member != except;",
        "if (&member == except || member.lives()) return &member != except && member.connected;",
    ),
    ("a change goes on without a fenced owner before that is on disk", MASTER + "membership.cpp", "if (record_.onDisk()) {", "if (true) {"),
    (
        "the values of any earlier life are taken in the window",
        MASTER + "window.cpp",
        "expected->second.givenUp == 0 &&\n         registration.adopts == expected->second.life;",
        "expected->second.givenUp == 0;",
    ),
    (
        "a change is acknowledged before each node of the last term has registered",
        MASTER + "window.cpp",
        "std::exchange(acknowledges_, registered)",
        "std::exchange(acknowledges_, true)",
    ),
    (
        "a node that lists its values is not told of changes",
        MASTER + "changes.cpp",
        "window_.listing()) {\n    if (!mustHear(*member)) continue;",
        "window_.listing()) {\n    continue;",
    ),
    ("an inventory brings back what was deleted in the window", MASTER + "inventory.cpp", "item.putId < bounds_.of(item.key)", "false"),
    (
        "an owner serves before all of its pages are answered",
        OWNER + "inventory.cpp",
        "if (state_ != State::sent || !pages_.empty()) return;",
        "if (page.pages == 0) return;",
    ),
    (
        "an inventory within the term revives what a change is about to end",
        MASTER + "inventory.cpp",
        "!entry || entry->change || entry->putId",
        "!entry || entry->putId",
    ),
    (
        "a delete does not tell who is being brought an evicted value",
        MASTER + "changes.cpp",
        "(!entry->routed() && entry->transfers.empty())",
        "!entry->routed()",
    ),
    ("a lease is judged before what has come is handled", MASTER + "membership.cpp", "heard < member.leaseEnd", "now < member.leaseEnd"),
    ("the window ends when the first owner has joined", MASTER + "window.cpp", "expected_.erase(expected);\n", "expected_.clear();\n"),
    ("a registration that arrives late is taken", MASTER + "membership.cpp", "registration.sent < known->registered", "false"),
    (
        "an earlier put that ends later becomes the route",
        MASTER + "changes.cpp",
        "put.overtaken == Overtaken::byDelete || entry.putId > put.putId",
        "false",
    ),
    (
        "a put that rejects an existing key is done after one with a greater put_id",
        MASTER + "changes.cpp",
        "(put.overtaken != Overtaken::no || readable(entry))",
        "(entry.putId <= put.putId && readable(entry))",
    ),
    (
        "a copy becomes a replica without a look at its put_id",
        MASTER + "transfers.cpp",
        "transfer.durable && entry.putId == transfer.putId && !entry.change",
        "transfer.durable && !entry.change",
    ),
    (
        "a request that comes twice is carried out twice",
        MASTER + "master_core.cpp",
        'FLUXON_MARK("master: a request comes twice, the first one is under way"); continue;',
        "break;",
    ),
    ("the folder of the state file is not synced", MASTER + "state_file.cpp", "return disk.syncFolder(path);", "return {};"),
    ("the state file is not synced", MASTER + "state_file.cpp", "if (Error error = disk.sync(beside); !error.ok()) return error;", ""),
    ("the end of a route leaves no bound in the window", MASTER + "routes.cpp", "bounds_.add(entry.key, below);", ""),
    (
        "a staged place is given out before its source has let it go",
        MASTER + "staging.cpp",
        "== 0) unstage(source, stage);",
        "== 0) source.space.free(stage.offset);",
    ),
    (
        "values that the last life was dropping are adopted",
        OWNER + "owner_core.cpp",
        "const bool worthless = !directory_.content();",
        "const bool worthless = false;",
    ),
    (
        "a new term is written before its master",
        OWNER + "joining.cpp",
        "store(header_.highestMaster, hello.master.value);\n  store(header_.highestTerm, hello.term.value);",
        "store(header_.highestTerm, hello.term.value);\n  store(header_.highestMaster, hello.master.value);",
    ),
    ("a victim that is held is reclaimed", OWNER + "retirement.cpp", "if (held[i]) {", "if (false) {"),
    (
        "a retired value goes while it is held",
        OWNER + "retirement.cpp",
        "if (scannedSlot == byRef.end() || scannedSlot->second) return false;",
        "if (scannedSlot == byRef.end()) return false;",
    ),
    ("an invalidation forgets what is being written", OWNER + "key_controls.cpp", "control->second.bound = below;", ""),
    (
        "a value that was overtaken becomes readable",
        OWNER + "puts.cpp",
        "const bool current = controls_.bound(key) <= putId;\n  // Replies",
        "const bool current = true;\n  // Replies",
    ),
    (
        "a published value is readable while another put of its key is undecided",
        OWNER + "publications.cpp",
        "if (undecided(slot)) {",
        "if (origin != Origin::put && undecided(slot)) {",
    ),
    ("a serving lease counts from the answer", OWNER + "standing.cpp", "extend(sent + lease_);", "extend(now + lease_);"),
    (
        "a copy that was overtaken becomes readable",
        OWNER + "flights.cpp",
        "const bool current = controls_.bound(key) <= decided.putId;\n  // Whether",
        "const bool current = true;\n  // Whether",
    ),
    (
        "a copy that did not become readable lets an older value in",
        OWNER + "flights.cpp",
        "if (published && current) controls_.raise(key, decided.putId);",
        "",
    ),
    (
        "a copy is readable while a put of its key is undecided",
        OWNER + "publications.cpp",
        "if (undecided(slot)) {",
        "if (origin == Origin::put && undecided(slot)) {",
    ),
    (
        "a value that comes home leaves an older one readable there",
        OWNER + "flights.cpp",
        "publications_.submitted(flight.slot, retirement_.retireOlder(flight.slot, flight.putId));",
        "publications_.submitted(flight.slot, {});",
    ),
    (
        "an owner that comes back takes the grant of a writer that lives",
        OWNER + "retirement.cpp",
        "if (living.count(directory_.writer(slot))) {",
        "if (false) {",
    ),
    (
        "a directory does not say whose lease it has",
        OWNER + "standing.cpp",
        "directory_.setMaster(master_);",
        "directory_.setMaster(Incarnation(1));",
    ),
    ("the reserve of the last term is used in the next", OWNER + "puts.cpp", "reserve_.forget();", ""),
    (
        "an invalidation is answered before ssdd has heard of it",
        OWNER + "ssd_tier.cpp",
        "if (life_ && !order.below.empty()) return",
        "if (false) return",
    ),
    (
        "what the master refuses of an SSD stays there",
        OWNER + "inventory.cpp",
        "if (!dead.empty()) ssd_.dropRefused(",
        "if (false) ssd_.dropRefused(",
    ),
    (
        "what is persisted is reclaimed",
        OWNER + "ssd_persists.cpp",
        "if (persist.state != Persist::State::queued || now < persist.since + kQueuedPatience) return false;",
        "",
    ),
    ("a new term waits for a disk that hangs", OWNER + "flights.cpp", "return !each.second.load;", "return true;"),
    (
        "a place that a load may write is free in the next term",
        OWNER + "retirement.cpp",
        "if (state == shm::SlotState::free || state == shm::SlotState::committed) continue;",
        "if (state == shm::SlotState::free || state == shm::SlotState::committed || directory_.writer(slot) == kSsdWriter.value) continue;",
    ),
    (
        "a staged place is free while ssdd writes it",
        OWNER + "stages.cpp",
        "} else if (stage.load) {\n    return;",
        "} else if (false) {\n    return;",
    ),
    (
        "the home of a new value is not told of an older one on its SSD",
        MASTER + "changes.cpp",
        "mustHear(*replica.member) || older",
        "mustHear(*replica.member)",
    ),
    ("what the master has not taken stays", SSDD + "persists.cpp", "std::move(*pin).ignored();", ""),
    (
        "what the master is asked about is written over",
        RING,
        "if (held(entries_.front())) return false;",
        "if (entries_.front().readPins > 0 || entries_.front().writers > 0) return false;",
    ),
    (
        "what is read is written over",
        RING,
        "if (held(entries_.front())) return false;",
        "if (entries_.front().writers + entries_.front().commitPins > 0) return false;",
    ),
    (
        "what is being written is written over",
        RING,
        "if (held(entries_.front())) return false;",
        "if (entries_.front().commitPins + entries_.front().readPins > 0) return false;",
    ),
    ("what nobody has decided about lives on", SSDD + "persists.cpp", "std::get<CommitPin>(std::move(persist.hold)).ignored();", ""),
    ("what a refused put has retired is not given up", OWNER + "publications.cpp", "if (givesUp) retirement_.dropped(retired);", ""),
    (
        "a flight that an invalidation has passed takes gets on",
        OWNER + "key_controls.cpp",
        "if (control.flight != 0 && control.flightPutId >= control.bound) {",
        "if (control.flight != 0) {",
    ),
    ("an SSD that was given up is taken again", OWNER + "ssd_tier.cpp", "host_.ssdStartOver(why);", ""),
]


def commands(build):
    """Of each source of the simulator's logic: how it is compiled. And how the simulator is linked."""
    compile_of = {}
    for entry in json.loads(subprocess.run(["ninja", "-C", build, "-t", "compdb"], check=True, capture_output=True, text=True).stdout):
        if "fluxon_sim_logic.dir" in entry.get("output", "") and entry["file"].endswith(".cpp"):
            compile_of[os.path.normpath(os.path.join(entry["directory"], entry["file"]))] = shlex.split(entry["command"])
    lines = subprocess.run(["ninja", "-C", build, "-t", "commands", "fluxon-sim"], check=True, capture_output=True, text=True).stdout
    link = [word for word in shlex.split(lines.strip().splitlines()[-1])]
    # Ninja wraps a link into ": && ... && :".
    link = link[link.index("&&") + 1 : len(link) - 1 - link[::-1].index("&&")]
    return compile_of, link


def changed(words, option, to):
    at = words.index(option)
    return words[: at + 1] + [to] + words[at + 2 :]


def attempt(mutant, options, compile_of, link, folder):
    name, path, piece, instead = mutant
    source = os.path.join(options.source, path)
    text = open(source, encoding="utf-8").read()
    if text.count(piece) != 1:
        return f"its piece is {text.count(piece)} times in {path}"
    stem = os.path.join(folder, str(MUTANTS.index(mutant)))
    with open(stem + ".cpp", "w", encoding="utf-8") as file:
        file.write(text.replace(piece, instead))
    compiling = [
        stem + ".cpp" if os.path.basename(word) == os.path.basename(source) and word.endswith(".cpp") else word
        for word in compile_of[os.path.realpath(source)]
    ]
    compiling = [word for word in compiling if not word.startswith("-Werror")]
    compiling = changed(compiling, "-o", stem + ".o")
    # Two processes may have headers of one name: the copy is to find those of its own folder.
    compiling[compiling.index("-o") : compiling.index("-o")] = ["-iquote", os.path.dirname(os.path.realpath(source))]
    if "-MF" in compiling:
        compiling = changed(compiling, "-MF", stem + ".d")
    done = subprocess.run(compiling, cwd=options.build, capture_output=True, text=True)
    if done.returncode != 0:
        return "it does not compile: " + done.stderr.strip().splitlines()[0]
    linking = changed(link, "-o", stem)
    linking.insert(linking.index("-o"), stem + ".o")
    done = subprocess.run(linking, cwd=options.build, capture_output=True, text=True)
    if done.returncode != 0:
        return "it does not link: " + done.stderr.strip().splitlines()[0]
    done = subprocess.run([stem, "--seeds", options.seeds], capture_output=True, text=True)
    os.unlink(stem)
    found = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("FOUND")]
    if done.returncode == 0 or not found:
        return "no seed finds it"
    print(f"  {name}\n      {found[0][:150]}", flush=True)
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--source", default=os.path.join(os.path.dirname(__file__), "..", ".."))
    parser.add_argument("--seeds", required=True, help="FIRST:LAST, the fixed set")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", nargs="*", help="names of mutants")
    parser.add_argument("--every", type=int, default=1, help="each N-th mutant")
    options = parser.parse_args()
    wanted = [mutant for mutant in MUTANTS if not options.only or mutant[0] in options.only][:: options.every]
    if not wanted:
        sys.exit("mutants: no mutant of that name")
    compile_of, link = commands(options.build)
    began, missed = time.monotonic(), 0
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        attempts = [(mutant, pool.submit(attempt, mutant, options, compile_of, link, folder)) for mutant in wanted]
        for mutant, result in attempts:
            if result.result():
                missed += 1
                print(f"MISSED  {mutant[0]}: {result.result()}", flush=True)
    print(f"{len(wanted) - missed} of {len(wanted)} mutants found in {time.monotonic() - began:.0f} s")
    sys.exit(1 if missed else 0)


main()
