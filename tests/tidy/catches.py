#!/usr/bin/env python3
"""Shows that each check of tidy.py can fail: spoils a copy of the tree in one way at a time and expects the complaint.

  catches.py COMMAND...     the command line of tidy.py, with --source and --build
"""
import os
import shutil
import subprocess
import sys
import tempfile

command = sys.argv[1:]
source = command[command.index("--source") + 1]
build = command[command.index("--build") + 1]


def append(name, text):
    def spoil(root):
        with open(os.path.join(root, name), "a") as file:
            file.write(text)

    return spoil


def replace(name, old, new):
    def spoil(root):
        path = os.path.join(root, name)
        with open(path) as file:
            text = file.read()
        if old not in text:
            sys.exit(f"catches: {name} has no {old!r} to spoil")
        with open(path, "w") as file:
            file.write(text.replace(old, new, 1))

    return spoil


def only_base(then):
    """Leaves few headers, so that compiling them is quick."""

    def spoil(root):
        shutil.rmtree(os.path.join(root, "tools"))
        for layer in os.listdir(os.path.join(root, "libfluxon")):
            if layer not in ("base", "include") and os.path.isdir(os.path.join(root, "libfluxon", layer)):
                shutil.rmtree(os.path.join(root, "libfluxon", layer))
        then(root)

    return spoil


def include(name, header):
    return append(name, f"#include {header}\n")


# what is spoilt, the check that must see it, how, and what it must say
CASES = [
    ("a layer includes one that it does not stand on", "includes", include("libfluxon/base/size.h", '"shm/paths.h"'), "stands on nothing"),
    ("RPC includes the link", "includes", include("libfluxon/rpc/access.h", '"link/tcp/link_format.h"'), "stands on base, shm, net"),
    ("links include one of them", "includes", include("libfluxon/link/link.h", '"link/tcp/settings.h"'), "link includes link/tcp"),
    ("a tool includes another", "includes", include("tools/fluxon-owner/reserve.h", '"../fluxon-master/member.h"'), "another folder"),
    ("a heavy header leaves home", "includes", include("libfluxon/shm/paths.h", "<uv.h>"), "whose home is"),
    ("an installed header includes a layer", "includes", include("libfluxon/include/fluxon/fluxon.h", '"base/size.h"'), "not installed"),
    ("logic includes the loop", "logic", include("tools/fluxon-owner/reserve.h", "<kj/async.h>"), "is logic"),
    ("logic sees RPC through a header", "logic", include("libfluxon/rpc/messages.h", '"rpc/codec.h"'), "is logic"),
    (
        "a header needs what it does not include",
        "headers",
        only_base(append("libfluxon/base/size.h", "inline std::deque<int> spoilt;\n")),
        "alone",
    ),
    ("a key without documentation", "config", replace("libfluxon/base/config.cpp", '{"max_clients"', '{"most_clients"'), "most_clients"),
    ("documentation of no key", "config", replace("man/fluxon.toml.5", ".It Va populate\n", ".It Va populated\n"), "populated"),
    ("an example with a wrong key", "config", append("systemd/fluxon.toml", 'colour = "red"\n'), "colour"),
    ("a metric without documentation", "metrics", replace("man/fluxon-owner.8", ".It Va fluxon_owner_grants\n", ""), "fluxon_owner_grants"),
    (
        "documentation of no metric",
        "metrics",
        replace("tools/fluxon-master/metrics.cpp", '"fluxon_master_keys"', '"fluxon_master_names"'),
        "fluxon_master_keys",
    ),
    (
        "a metric that a part declares, without documentation",
        "metrics",
        replace("tools/fluxon-owner/puts.h", '"fluxon_owner_puts_total"', '"fluxon_owner_sets_total"'),
        "fluxon_owner_sets_total",
    ),
    ("a field without documentation", "metrics", replace("man/fluxon-master.8", ".It Va silent\n", ""), "silent"),
    ("a counter without documentation", "metrics", replace("libfluxon/shm/client_format.h", "X(hits,", "X(strikes,"), "strikes"),
    ("a code without documentation", "errors", replace("man/fluxon.3", ".It Dv FLUXON_NO_SPACE\n", ""), "FLUXON_NO_SPACE"),
    ("a code with another value", "errors", replace("man/fluxon.3", "\n19: ", "\n91: "), "FLUXON_NO_SPACE 19"),
    ("a function without documentation", "errors", replace("man/fluxon.3", ".Fn fluxon_close ", ".Fn fluxon_shut "), "fluxon_close"),
    ("an option without documentation", "options", replace("man/fluxon-owner.8", ".It Fl -node Ar NAME\n", ""), "--node"),
    (
        "documentation of no option",
        "options",
        replace("man/fluxon-master.8", ".It Fl -version\n", ".It Fl -version , Fl -colour\n"),
        "--colour",
    ),
    ("a verb without documentation", "options", replace("man/fluxonctl.1", ".It Cm members\n", ""), "members"),
    ("a format without a page", "pages", replace("libfluxon/shm/segment_format.h", "Page: fluxon-segment(5)", ""), "names no page"),
    ("a reference to no page", "pages", append("man/fluxon-state.5", ".Xr fluxon-moon 5\n"), "fluxon-moon(5)"),
    ("a page with an error", "pages", append("man/fluxon-state.5", ".El\n"), "El"),
    ("a page that is not installed", "pages", replace("man/CMakeLists.txt", "fluxon-state.5", ""), "does not install"),
    (
        "an example that does not compile",
        "examples",
        replace("man/fluxon.3", "fluxon_holder holder =", "fluxon_bolder holder ="),
        "does not compile",
    ),
    ("something unfinished", "words", append("libfluxon/base/size.h", "// TO" + "DO\n"), "unfinished"),
    ("a path of one machine", "words", append("README.md", "/wor" + "k/here\n"), "one machine"),
    ("a line that clang-format breaks", "format", append("libfluxon/base/size.h", "int  x;\n"), "scripts/format"),
    ("a line that black breaks", "format", append("tests/sim/mutants.py", "x=1\n"), "scripts/format"),
    ("a line that shfmt breaks", "format", append("scripts/build", "if true;then :; fi\n"), "scripts/format"),
    ("a tab", "style", append("libfluxon/base/size.h", "\tint x;\n"), "tab"),
    ("a long line", "style", append("libfluxon/base/size.h", "// " + "x" * 140 + "\n"), "columns"),
]
if not all(map(shutil.which, ("clang-format", "black", "shfmt"))):
    print("catches: SKIPPED lines that a formatter breaks: no formatters")
    CASES = [case for case in CASES if case[1] != "format"]
if not shutil.which("mandoc"):
    print("catches: SKIPPED a page with an error: no mandoc")
    CASES = [case for case in CASES if case[0] != "a page with an error"]


def main():
    missed = 0
    names = subprocess.run(["git", "-C", source, "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True)
    if names.returncode != 0:
        print("catches: SKIPPED: the source is no checkout")
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        for what, check, spoil, expected in CASES:
            root = os.path.join(temporary, "source")
            for name in names.stdout.splitlines():
                if name.startswith(("traces/",)) or not os.path.isfile(os.path.join(source, name)):
                    continue
                os.makedirs(os.path.dirname(os.path.join(root, name)), exist_ok=True)
                shutil.copyfile(os.path.join(source, name), os.path.join(root, name))
            spoil(root)
            run_build = temporary if check == "headers" else build
            arguments = [root if each == source else run_build if each == build else each for each in command]
            run = subprocess.run([*arguments, "--only", check], capture_output=True, text=True)
            if run.returncode != 1 or expected not in run.stdout:
                missed += 1
                print(f"catches: {what}: not noticed by {check} (exit {run.returncode})\n{run.stdout}{run.stderr}")
            shutil.rmtree(root)
    print(f"catches: {len(CASES) - missed} of {len(CASES)} noticed")
    return 1 if missed else 0


sys.exit(main())
