#!/usr/bin/env python3
"""What the compiler does not check: layers, headers alone, and that documents say what the code says.

  tidy.py --source DIR --build DIR [--binary NAME=PATH ...] [--only CHECK ...]

Prints one line for each problem and exits 1 if there is any. A check whose tool is missing is skipped aloud.
"""
import argparse
import concurrent.futures
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile

COLUMNS = 140
# What each layer of libfluxon may include beside itself.
LAYERS = {
    "base": [],
    "shm": ["base"],
    "net": ["base", "shm"],
    "ssd": ["base", "shm"],
    "client": ["base", "shm"],
    "link": ["base", "shm"],
    "link/tcp": ["base", "shm", "net", "link"],
    "rpc": ["base", "shm", "net"],
}
# A heavy header and the files that may include it.
HOMES = {
    "uv.h": ["tools/fluxonctl/supervisor.cpp"],
    "toml++/": ["libfluxon/base/config.cpp"],
    "CLI/": ["libfluxon/rpc/daemon_main.cpp", "tools/fluxonctl/options.cpp"],
    "spdlog/": ["libfluxon/base/log.cpp"],
    "prometheus/": ["libfluxon/rpc/metrics.cpp"],
    "isa-l": ["libfluxon/base/crc32c.cpp"],
    "liburing.h": ["libfluxon/link/tcp/uring_engine.cpp", "tools/fluxon-ssdd/storage/uring_file_engine.cpp"],
    "xxhash.h": ["libfluxon/base/hash.h"],
    "systemd/": ["libfluxon/rpc/daemon_main.cpp"],
    "openssl/": ["libfluxon/net/secret.cpp", "libfluxon/rpc/access.cpp"],
    "kj/compat/tls.h": ["libfluxon/rpc/access.cpp"],
    "kj/": ["libfluxon/rpc/.*", "tools/.*"],
    "capnp/": ["libfluxon/rpc/.*", "tools/.*"],
    "schema/": ["libfluxon/rpc/codec.h", "tools/.*"],
}
# What the logic of a process (its *_logic library) may not see, directly or through a header.
NOT_IN_LOGIC = ["kj/", "capnp/", "schema/", "uv.h", "sys/socket.h", "sys/un.h", "netinet/", "CLI/", "toml++/"]
PAGES = {"fluxon-master": "fluxon-master.8", "fluxon-owner": "fluxon-owner.8", "fluxon-ssdd": "fluxon-ssdd.8", "fluxonctl": "fluxonctl.1"}
FORBIDDEN = [
    ("/wor" + "k/", "a path of one machine"),
    (r"\bTO" + r"DO\b", "unfinished"),
    (r"\bFIX" + r"ME\b", "unfinished"),
    (r"\bX" + r"XX\b", "unfinished"),
]

problems = []
skipped = []


def problem(where, what):
    problems.append(f"{where}: {what}")


def skip(check, why):
    skipped.append(check)
    print(f"tidy: SKIPPED {check}: {why}")


class Tree:
    def __init__(self, root):
        self.root = root
        names = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True)
        if names.returncode == 0:
            found = names.stdout.splitlines()
        else:  # not a checkout: all there is
            found = [os.path.relpath(os.path.join(folder, name), root) for folder, _, files in os.walk(root) for name in files]
        self.names = sorted(name for name in found if os.path.isfile(os.path.join(root, name)))
        self.cache = {}

    def text(self, name):
        if name not in self.cache:
            with open(os.path.join(self.root, name), "rb") as file:
                self.cache[name] = file.read().decode("utf-8", "replace")
        return self.cache[name]

    def has(self, name):
        return name in self.names

    def match(self, pattern):
        return [name for name in self.names if re.fullmatch(pattern, name)]

    def includes(self, name):
        """(line number, header) of each include of a file."""
        return [
            (number, match.group(1))
            for number, line in enumerate(self.text(name).splitlines(), 1)
            if (match := re.match(r'\s*#\s*include\s+[<"]([^>"]+)[>"]', line))
        ]

    def resolve(self, name, header):
        """The file of the tree that an include means, or None."""
        for folder in (os.path.dirname(name), "libfluxon", "libfluxon/include"):
            path = os.path.normpath(os.path.join(folder, header))
            if self.has(path):
                return path
        return None

    def closure(self, name):
        """All files of the tree that `name` sees, and all headers that are not of the tree with the file that includes them."""
        files, foreign, todo = set(), [], [name]
        while todo:
            each = todo.pop()
            if each in files:
                continue
            files.add(each)
            for _, header in self.includes(each):
                path = self.resolve(each, header)
                if path:
                    todo.append(path)
                else:
                    foreign.append((each, header))
        return files, foreign


def sources(tree):
    return tree.match(r"(libfluxon|tools)/.*\.(h|hpp|cpp|def)")


def layer_of(folder):
    """The layer that a folder below libfluxon is or lies in, or None."""
    while folder and folder not in LAYERS:
        folder = os.path.dirname(folder)
    return folder or None


def check_includes(tree, _):
    """Layers know those that they stand on; tools know their own folder and the layers; heavy headers stay at home."""
    for name in sources(tree):
        parts = name.split("/")
        layer = layer_of(os.path.dirname(os.path.relpath(name, "libfluxon"))) if parts[0] == "libfluxon" else None
        installed = name.startswith("libfluxon/include/")
        for number, header in tree.includes(name):
            where = f"{name}:{number}"
            included = layer_of(os.path.dirname(header))
            if ".." in header.split("/") or header.startswith(("tools/", "libfluxon/", "fluxon-", "fluxonctl/")):
                problem(where, f"includes {header}: another folder is reached through its layer only")
            if layer and included and included not in [layer, *LAYERS[layer]]:
                problem(where, f'{layer} includes {header}, and stands on {", ".join(LAYERS[layer]) or "nothing"}')
            if installed and (path := tree.resolve(name, header)) and not path.startswith("libfluxon/include/"):
                problem(where, f"an installed header includes {header}, which is not installed")
            if installed and re.match(r"kj/|capnp/|uv\.h|spdlog|xxhash", header):
                problem(where, f"an installed header includes {header} (the standard library alone)")
            for heavy, homes in HOMES.items():
                if header.startswith(heavy) and not any(re.fullmatch(home, name) for home in homes):
                    problem(where, f'includes {header}, whose home is {" or ".join(homes)}')
            if parts[0] == "tools" and "/" not in header and (path := tree.resolve(name, header)):
                if os.path.dirname(path) != os.path.dirname(name):
                    problem(where, f"includes {header} of another folder")


def check_logic(tree, _):
    """The logic of a process sees no loop, no RPC and no socket."""
    libraries = re.findall(r"add_library\(fluxon_\w+_logic STATIC([^)]*)\)", tree.text("CMakeLists.txt"))
    if not libraries:
        problem("CMakeLists.txt", "no fluxon_*_logic library found")
    for name in (each for library in libraries for each in library.split()):
        if not tree.has(name):
            problem("CMakeLists.txt", f"{name} does not exist")
            continue
        for by, header in tree.closure(name)[1]:
            if header.startswith(tuple(NOT_IN_LOGIC)):
                problem(by, f"{name} is logic and sees {header}")


def compiles(command, source_dir, stamp, key):
    if os.path.exists(stamp):
        with open(stamp) as file:
            if file.read() == key:
                return None
    run = subprocess.run(command, cwd=source_dir, capture_output=True, text=True)
    if run.returncode == 0:
        with open(stamp, "w") as file:
            file.write(key)
        return None
    lines = [line for line in run.stderr.splitlines() if "error" in line] or run.stderr.splitlines() or ["fails"]
    return lines[0]


def check_headers(tree, options):
    """Each header compiles alone. What has compiled once is compiled again when it, or what it includes, has changed."""
    compiler = shutil.which("g++") or shutil.which("c++")
    if not compiler:
        return skip("headers", "no C++ compiler")
    generated = os.path.exists(os.path.join(options.build, "schema", "master.capnp.h"))
    stamps = os.path.join(options.build, "tidy")
    os.makedirs(stamps, exist_ok=True)
    jobs = []
    without_schema = []
    for name in tree.match(r"(libfluxon|tools)/.*\.(h|hpp)"):
        files, foreign = tree.closure(name)
        if any(header.startswith("schema/") for _, header in foreign) and not generated:
            without_schema.append(name)
            continue
        is_c = name.endswith("include/fluxon/fluxon.h")
        languages = [["-x", "c++", "-std=c++20"]] + ([["-x", "c", "-std=c11"]] if is_c else [])
        schemas = "".join(tree.text(each) for each in tree.match(r"schema/.*\.capnp"))
        for language in languages:
            command = [
                compiler,
                "-fsyntax-only",
                *language,
                "-w",
                '-DFLUXON_VERSION="0"',
                "-Ilibfluxon",
                "-Ilibfluxon/include",
                "-I" + options.build,
                name,
            ]
            digest = hashlib.sha256(" ".join(command).encode() + schemas.encode())
            for each in sorted(files):
                digest.update(tree.text(each).encode())
            stamp = os.path.join(stamps, re.sub(r"\W", "_", name) + "_" + language[1])
            jobs.append((name, command, stamp, digest.hexdigest()))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = pool.map(lambda job: (job[0], compiles(job[1], tree.root, job[2], job[3])), jobs)
        for name, error in results:
            if error:
                problem(name, f"does not compile alone: {error}")
    if without_schema:
        skip("headers with RPC", "the schema has not been compiled in the build folder")


def page_lines(tree, page):
    return tree.text("man/" + page).splitlines() if tree.has("man/" + page) else []


def both_ways(code, page, what, code_file, page_file):
    for name in sorted(code - page):
        problem(page_file, f"{what} {name} of {code_file} is missing")
    for name in sorted(page - code):
        problem(page_file, f"{what} {name} is not in {code_file}")


def check_config(tree, options):
    """fluxon.toml(5) has every key of the configuration, and the example and the page's own example are valid."""
    text = tree.text("libfluxon/base/config.cpp")
    schema = text[text.index("schemaOf(Config") : text.index("std::string position")]
    code, section = set(), ""
    for match in re.finditer(r'\{"(\w+)",\s*(\{)?', schema):
        if match.group(2):
            section = match.group(1)
        elif re.match(
            r"\s*(name|nameOrNone|path|text|flag|number|duration|size|listen|remote|host|names|paths|sizes|oneOf)\(", schema[match.end() :]
        ):
            code.add(f"[{section}] {match.group(1)}")
        # "debug" and its like are values
    if len(code) < 10:
        problem("libfluxon/base/config.cpp", "tidy finds too few keys in schemaOf")
    page, section = set(), ""
    for line in page_lines(tree, "fluxon.toml.5"):
        if line.startswith(".Ss ") or line.startswith(".Sh "):
            section = line[4:].strip() if line.startswith(".Ss [") else ""
        elif line.startswith(".It Va ") and section:
            page.add(f"{section} {line[7:].strip()}")
    both_ways(code, page, "key", "config.cpp", "man/fluxon.toml.5")
    example = page_block(tree, "fluxon.toml.5", "[common]")
    for name, content in (
        ("systemd/fluxon.toml", tree.text("systemd/fluxon.toml") if tree.has("systemd/fluxon.toml") else ""),
        ("man/fluxon.toml.5", example or ""),
    ):
        if not content:
            problem(name, "no example")
            continue
        section = ""
        for line in content.splitlines():
            if line.startswith("["):
                section = line.strip()
            elif match := re.match(r"(?:# )?(\w+) = ", line):
                if f"{section} {match.group(1)}" not in code:
                    problem(name, f"key {section} {match.group(1)} is not in config.cpp")
        tool = options.binaries.get("fluxonctl")
        if tool:
            with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
                # The group of the examples is made when Fluxon is installed.
                example = content.replace('shm_group = "fluxon"', 'shm_group = "root"')
                file.write(re.sub(r"^# (\w+ = )", r"\1", example, flags=re.M))
                file.flush()
                run = subprocess.run([tool, "config", "check", file.name], capture_output=True, text=True)
                if run.returncode != 0:
                    problem(name, f"example is refused: {run.stderr.strip()}")


def check_metrics(tree, _):
    """Every metric, event and /health field of a service is on its page."""
    for tool in ("fluxon-master", "fluxon-owner", "fluxon-ssdd"):
        source, page = f"tools/{tool}", PAGES[tool]
        text = "".join(tree.text(name) for name in tree.match(f"tools/{tool}/.*[.](cpp|h)"))
        prefix = tool.replace("-", "_") + "_"
        code = {name for name in re.findall(r'"(fluxon_[a-z0-9_]+)"', text)}
        for name in sorted(code):
            if not name.startswith(prefix):
                problem(source, f"metric {name} does not begin with {prefix}")
        lines = page_lines(tree, page)
        documented = {line[7:].split()[0] for line in lines if line.startswith(".It Va fluxon_")}
        both_ways(code, documented, "metric", source, "man/" + page)
        fields = set(re.findall(r'\.(?:text|number|flag|raw)\("([a-z_]+)"', text))
        section, described = "", set()
        for line in lines:
            if line.startswith((".Ss ", ".Sh ")):
                section = line[4:]
            elif line.startswith(".It Va ") and section == "/health":
                described.add(line[7:].split()[0])
        both_ways(fields, described, "field of /health", source, "man/" + page)
    for name in re.findall(r"^\s*X\((\w+),", tree.text("libfluxon/link/link_counters.h"), re.M):
        if not re.search(rf"\b{name}\b", "\n".join(page_lines(tree, "fluxon-owner.8"))):
            problem("man/fluxon-owner.8", f"counter {name} of link_counters.h is missing")
    counters = set(re.findall(r"^\s*X\((\w+),", tree.text("libfluxon/shm/client_format.h"), re.M))
    for page in ("fluxon-owner.8", "fluxon-client.5"):
        for name in sorted(counters):
            if not re.search(rf"\b{name}\b", "\n".join(page_lines(tree, page))):
                problem("man/" + page, f"counter {name} of client_format.h is missing")


def check_errors(tree, _):
    """fluxon(3) has every code with its value and its retry class."""
    text = tree.text("libfluxon/include/fluxon/errors.def")
    code = {
        f"FLUXON_{name} {value} [{retry}]"
        for name, value, retry in re.findall(r"^FLUXON_RESULT\(\w+,\s*(\w+),\s*(\d+),\s*\w+,\s*(\w+),", text, re.M)
    }
    lines = page_lines(tree, "fluxon.3")
    page = set()
    for at, line in enumerate(lines):
        if not line.startswith(".It Dv FLUXON_"):
            continue
        end = next((i for i in range(at + 1, len(lines)) if lines[i].startswith((".It", ".El"))), len(lines))
        body = " ".join(lines[at + 1 : end])
        value, retry = re.match(r"(\d+)", body), re.search(r"\[(\w+)\]", body)
        name = line.split()[2]
        page.add(f'{name} {value.group(1) if value else "?"} [{retry.group(1) if retry else "never"}]')
    both_ways(code, page, "code", "errors.def", "man/fluxon.3")
    header = tree.text("libfluxon/include/fluxon/fluxon.h")
    functions = set(re.findall(r"\b(fluxon_\w+)\(", re.sub(r"/\*.*?\*/", "", header, flags=re.S)))
    synopsis = lines[lines.index(".Sh SYNOPSIS") : lines.index(".Sh DESCRIPTION")] if ".Sh SYNOPSIS" in lines else []
    documented = set(re.findall(r"^\.F[no] (fluxon_\w+)", "\n".join(synopsis), re.M))
    both_ways(functions, documented, "function", "fluxon.h", "man/fluxon.3")


def help_of(binary, verbs=()):
    run = subprocess.run([binary, *verbs, "--help"], capture_output=True, text=True, timeout=60)
    long_options = set(re.findall(r"^\s+(?:-\w,)?(--[a-z][a-z-]*)", run.stdout, re.M))
    section = re.search(r"^Verbs:\n((?:  .*\n)+)", run.stdout, re.M)
    found = re.findall(r"^  (\S+)", section.group(1), re.M) if section else []
    names = set()
    for verb in found:
        below_options, below = help_of(binary, (*verbs, verb))
        long_options |= below_options
        names |= {f"{verb} {each}" for each in below} or {verb}
    return long_options, names


def check_options(tree, options):
    """Every option and verb of --help is on the page of its program."""
    for name, page in PAGES.items():
        binary = options.binaries.get(name)
        if not binary or not os.path.exists(binary):
            skip(f"options of {name}", "it has not been built")
            continue
        code, verbs = help_of(binary)
        lines = page_lines(tree, page)
        documented, described = set(), set()
        for line in lines:
            if not line.startswith((".It Fl", ".It Cm")):
                continue
            documented |= {"-" + flag for flag in re.findall(r"Fl (-[a-z][a-z-]*)", line)}
            words = re.match(r"\.It Cm (\w+)(?: Cm (\w+))?", line)
            if words:
                described.add(" ".join(word for word in words.groups() if word))
        both_ways(code, documented, "option", f"{name} --help", "man/" + page)
        both_ways(verbs, described, "verb", f"{name} --help", "man/" + page)


def check_pages(tree, _):
    """Formats have pages, references lead somewhere, and all pages are linted and installed."""
    pages = {os.path.basename(name) for name in tree.match(r"man/.*\.[1-9]")}
    for name in tree.match(r"(libfluxon|tools)/.*_format\.h"):
        references = re.findall(r"Page: (fluxon[\w.-]*)\((\d)\)", tree.text(name))
        if not references:
            problem(name, 'names no page ("Page: NAME(5).")')
    for name in sources(tree) + tree.match(r"(schema|scripts|systemd)/.*"):
        for page, section in re.findall(r"\b(fluxon[a-z.-]*)\((\d)\)", tree.text(name)):
            if f"{page}.{section}" not in pages:
                problem(name, f"refers to {page}({section}), which is not there")
    for page in sorted(pages):
        for target, section in re.findall(r"\.Xr (fluxon\S*) (\d)", tree.text("man/" + page)):
            if f"{target}.{section}" not in pages:
                problem("man/" + page, f"refers to {target}({section}), which is not there")
        if page not in tree.text("man/CMakeLists.txt").replace(")", " ").split():
            problem("man/CMakeLists.txt", f"does not install {page}")
    if not shutil.which("mandoc"):
        return skip("lint of pages", "no mandoc")
    for page in sorted(pages):
        run = subprocess.run(
            ["mandoc", "-Tlint", "-W", "warning", page], cwd=os.path.join(tree.root, "man"), capture_output=True, text=True
        )
        for line in (run.stdout + run.stderr).splitlines():
            problem("man/" + page, line.removeprefix("mandoc: "))


def page_block(tree, page, first):
    """The literal block of a page whose first line is `first`, as it is printed."""
    for block in re.findall(r"^\.Bd -literal[^\n]*\n(.*?)^\.Ed", "\n".join(page_lines(tree, page)) + "\n", re.M | re.S):
        if block.startswith(first + "\n"):
            return block.replace("\\e", "\\")
    return None


def check_examples(tree, options):
    """The programs of fluxon(3) compile."""
    compiler = shutil.which("g++") or shutil.which("c++")
    if not compiler:
        return skip("examples", "no C++ compiler")
    for first, language in (("/* example.c */", ["-x", "c", "-std=c11"]), ("// example.cpp", ["-x", "c++", "-std=c++20"])):
        text = page_block(tree, "fluxon.3", first)
        if text is None:
            problem("man/fluxon.3", f"no example that begins with {first}")
            continue
        run = subprocess.run(
            [compiler, "-fsyntax-only", "-Wall", "-Wextra", "-Werror", *language, "-Ilibfluxon/include", "-"],
            cwd=tree.root,
            input=text,
            capture_output=True,
            text=True,
        )
        if run.returncode != 0:
            problem("man/fluxon.3", f"example does not compile: {run.stderr.splitlines()[0]}")


def check_words(tree, _):
    """No paths of one machine, nothing unfinished."""
    for name in tree.names:
        if "\0" in tree.text(name):
            continue
        for number, line in enumerate(tree.text(name).splitlines(), 1):
            for pattern, why in FORBIDDEN:
                if match := re.search(pattern, line):
                    problem(f"{name}:{number}", f"has {match.group(0)!r}: {why}")


def check_format(tree, _):
    """Every file is as scripts/format leaves it."""
    missing = [tool for tool in ("clang-format", "black", "shfmt") if not shutil.which(tool)]
    if missing:
        return skip("format", "no " + ", ".join(missing))
    for name in subprocess.run(["bash", "scripts/format", "--check"], cwd=tree.root, capture_output=True, text=True).stdout.splitlines():
        problem(name, "is not as scripts/format leaves it")


def check_style(tree, _):
    """No tabs, no trailing blanks, lines that fit."""
    for name in tree.match(r".*\.(h|hpp|cpp|def|capnp|py)|scripts/.*"):
        for number, line in enumerate(tree.text(name).splitlines(), 1):
            if "\t" in line:
                problem(f"{name}:{number}", "has a tab")
            if line != line.rstrip():
                problem(f"{name}:{number}", "ends with blanks")
            if len(line) > COLUMNS:
                problem(f"{name}:{number}", f"has {len(line)} columns (up to {COLUMNS})")


CHECKS = {name.removeprefix("check_"): function for name, function in list(globals().items()) if name.startswith("check_")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", required=True)
    parser.add_argument("--build", required=True)
    parser.add_argument("--binary", action="append", default=[])
    parser.add_argument("--only", action="append", choices=sorted(CHECKS))
    options = parser.parse_args()
    options.binaries = dict(each.split("=", 1) for each in options.binary)
    tree = Tree(options.source)
    for name in options.only or CHECKS:
        CHECKS[name](tree, options)
    for each in problems:
        print(each)
    print(f"tidy: {len(problems)} problems" + (f', skipped: {", ".join(skipped)}' if skipped else ""))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
