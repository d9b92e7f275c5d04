#include "options.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <sstream>
#include <tuple>
#include <utility>

#include "base/ids.h"

namespace fluxon::ctl {
namespace {

constexpr const char* kSystemConfig = "/etc/fluxon/fluxon.toml";
constexpr const char* kNames = "accepted: 1 to 32 of A-Z a-z 0-9 _ - ., no leading .";

// Texts as they stand on the command line, before they are checked.
struct Raw {
  std::optional<std::string> timeout;
  std::string ttl;
  bool local = false;
  bool json = false;
};

// CLI11 2.1 takes an argument "[a,b]" for a list and "++" for the end of a verb. Such arguments get a first byte that keeps them
// whole, and lose it again once they are parsed.
constexpr char kShield = '\x01';

std::string shielded(std::string argument) {
  const bool odd = !argument.empty() && (argument.front() == '[' || argument.front() == kShield || argument == "++");
  return odd ? kShield + std::move(argument) : argument;
}
void unshield(std::string& text) {
  if (!text.empty() && text.front() == kShield) text.erase(0, 1);
}

constexpr uint64_t kMostTimeoutS = 86'400, kMostLeaseS = 365 * kMostTimeoutS;  // of a lease as in fluxon(3)

// "1.5", "0.25", "10": seconds as milliseconds, at least 1.
Result<uint64_t> parseSeconds(const std::string& option, const std::string& text, uint64_t most) {
  const bool digits = !text.empty() && text.find_first_not_of("0123456789.") == std::string::npos && text.find('.') == text.rfind('.') &&
                      text.find_first_of("0123456789") != std::string::npos;
  const double value = digits ? std::strtod(text.c_str(), nullptr) : -1;
  if (!(value > 0 && value <= static_cast<double>(most))) {
    return Error{Code::invalidArgument,
                 option + " '" + text + "' (accepted: seconds above 0 and up to " + std::to_string(most) + ", such as 0.5)"};
  }
  return static_cast<uint64_t>(std::ceil(value * 1000));
}

// CLI11 reads "-1" into an unsigned number.
std::string refuseNoNumber(const std::string& text) {
  const bool digits = !text.empty() && text.size() <= 19 && text.find_first_not_of("0123456789") == std::string::npos;
  return digits ? "" : "'" + text + "' (accepted: a whole number from 0 up)";
}

// Help in words: what the verbs call a value, without the types, checks and defaults of the parser.
class PlainHelp final : public CLI::Formatter {
 public:
  PlainHelp() {
    label("Positionals", "Arguments");
    label("SUBCOMMAND", "VERB");
    column_width(34);
  }

 private:
  std::string make_option_name(const CLI::Option* option, bool isPositional) const override {
    const std::string name = CLI::Formatter::make_option_name(option, isPositional);
    return name.substr(0, name.find('{'));  // "--no-wait{false}"
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    return option->get_option_text().empty() ? "" : " " + option->get_option_text();
  }
};

std::vector<const CLI::App*> verbsOf(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

// How many letters to change, add, leave out or swap with the next one.
size_t distance(const std::string& from, const std::string& to) {
  std::vector<std::vector<size_t>> table(from.size() + 1, std::vector<size_t>(to.size() + 1));
  for (size_t i = 0; i <= from.size(); ++i) {
    for (size_t j = 0; j <= to.size(); ++j) {
      size_t& best = table[i][j];
      if (i == 0 || j == 0) {
        best = i + j;
        continue;
      }
      best = std::min({table[i - 1][j] + 1, table[i][j - 1] + 1, table[i - 1][j - 1] + (from[i - 1] != to[j - 1])});
      const bool swapped = i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1];
      if (swapped) best = std::min(best, table[i - 2][j - 2] + 1);
    }
  }
  return table[from.size()][to.size()];
}

// "unknown verb gett (did you mean get? accepted: ...)". `word` empty: there is none.
std::string explainVerb(const CLI::App& parent, const std::string& path, const std::string& word) {
  std::string verbs, nearest;
  size_t least = std::max<size_t>(1, std::min<size_t>(word.size(), 9) / 3) + 1;
  for (const CLI::App* sub : verbsOf(parent)) {
    const std::string& name = sub->get_name();
    verbs += (verbs.empty() ? "" : ", ") + name;
    const size_t changes = word.size() < 2 ? least : name.starts_with(word) ? 0 : distance(word.substr(0, 32), name);
    if (changes < least) least = changes, nearest = name;
  }
  if (word.empty()) return "a verb is missing after " + path + " (accepted: " + verbs + ")";
  return "unknown verb " + quoted(word) + (path == "fluxonctl" ? "" : " after " + path) + " (" +
         (nearest.empty() ? "" : "did you mean " + nearest + "? ") + "accepted: " + verbs + ")";
}

// The verbs and their options.
class Verbs {
 public:
  Verbs(CLI::App& app, Options& options, Raw& raw) : app_(app), options_(options), raw_(raw) {
    addCacheVerbs();
    addOperatorVerbs();
    addSupervisorVerbs();
    verb(app_, "help", "print the options, of a verb or of all", Verb::help)->add_option("VERB", helpOn_, "such as: drain, or lease grant");
  }

  // What `help` prints, or invalidArgument.
  Result<std::string> help() const {
    const CLI::App* of = &app_;
    std::string path = app_.get_name();
    for (const std::string& word : helpOn_) {
      const std::vector<const CLI::App*> verbs = verbsOf(*of);
      if (verbs.empty()) return Error{Code::invalidArgument, "help " + quoted(word) + " (" + path + " has no verbs)"};
      const auto found = std::find_if(verbs.begin(), verbs.end(), [&](const CLI::App* each) { return each->get_name() == word; });
      if (found == verbs.end()) return Error{Code::invalidArgument, explainVerb(*of, path, word)};
      path += " " + word;
      of = *found;
    }
    return of->get_formatter()->make_help(of, path, CLI::AppFormatMode::Normal);
  }

  // An empty variable of a script is no name of a file, and no wish for stdout either. (CLI11 checks no empty value itself.)
  Error refuseEmptyFile() const {
    const bool given = std::any_of(files_.begin(), files_.end(), [](const CLI::Option* each) { return each->count() > 0; });
    if (!given || !options_.file.empty()) return {};
    return {Code::invalidArgument, "file '' (accepted: the name of a file, or - for stdin and stdout)"};
  }

  // What is to be deleted is said in one way. An empty prefix would be all.
  Error refuseUnclearKeys() {
    options_.byPrefix = prefix_->count() > 0;
    const bool ofStdin = options_.verb == Verb::read || options_.keysFromStdin || options_.keysOnly;
    if (options_.zeroEnded && !ofStdin) return {Code::invalidArgument, "-0 (accepted with list --keys, read, and delete --stdin)"};
    if (options_.verb != Verb::remove) return {};
    if (!options_.keys.empty() + options_.keysFromStdin + options_.byPrefix != 1) {
      return {Code::invalidArgument, "delete (accepted: either keys, or --stdin, or --prefix PREFIX)"};
    }
    if (options_.byPrefix && options_.prefix.empty()) return {Code::invalidArgument, "--prefix '' (accepted: a byte at least)"};
    return {};
  }

 private:
  CLI::App* verb(CLI::App& parent, const char* name, const char* text, Verb value) {
    CLI::App* sub = parent.add_subcommand(name, text);
    sub->fallthrough()->group("Verbs");
    sub->callback([this, value] { options_.verb = value; });
    return sub;
  }
  void key(CLI::App* sub) { sub->add_option("KEY", options_.keys, "the key")->required()->expected(1)->allow_extra_args(false); }
  void file(CLI::App* sub, const char* name, const char* text, const char* value = "FILE") {
    files_.push_back(sub->add_option(name, options_.file, text)->option_text(name[0] == '-' ? value : ""));
  }
  void prefix(CLI::App* sub) { sub->add_option("PREFIX", options_.prefix, "only keys that begin with it"); }
  void zeroEnded(CLI::App* sub) { sub->add_flag("-0,--null", options_.zeroEnded, "keys end with a zero byte, not with a newline"); }
  void paging(CLI::App* sub) {
    prefix(sub);
    sub->add_option("--after", options_.after, "only keys after this one, in byte order")->option_text("KEY");
    sub->add_option("--limit", options_.limit, "at most this many keys (0, the default: all)")->check(refuseNoNumber)->option_text("N");
  }

  void addCacheVerbs() {
    CLI::App* put = verb(app_, "put", "store a value", Verb::put);
    key(put);
    file(put, "FILE", "the value; - or none: stdin");
    put->add_flag("--reject-if-exists", options_.rejectIfExists, "fail (73) when the key has a value");
    put->add_flag("--reject-if-in-flight", options_.rejectIfInFlight, "fail (75) when another put of the key is in flight");
    put->add_option("--lease", options_.lease, "keep the value while this key lease lives")->check(refuseNoNumber)->option_text("ID");
    put->add_option("--replicas", options_.replicas, "nodes that shall have the value, 1 to 255 (default: 1)")
        ->check(CLI::Range(1, 255))
        ->option_text("N");
    CLI::App* get = verb(app_, "get", "print a value", Verb::get);
    key(get);
    file(get, "-o,--output", "write to this file, which is replaced at once when all is there");
    CLI::App* read =
        verb(app_, "read", "get the keys that stdin names, one a line, through one client; a row each as it comes", Verb::read);
    file(read, "-o,--output", "folder that takes the values, one file a key (bytes but A-Za-z0-9_.- as %XX, long names cut)", "DIR");
    zeroEnded(read);
    CLI::App* remove = verb(app_, "delete", "delete keys", Verb::remove);
    remove->add_option("KEY", options_.keys, "keys");
    remove->add_flag("--stdin", options_.keysFromStdin, "the keys that stdin names, one a line");
    zeroEnded(remove);
    prefix_ = remove->add_option("--prefix", options_.prefix, "all keys that begin with it")->option_text("PREFIX");
    CLI::App* stat = verb(app_, "stat", "version, size and replicas of a key", Verb::stat);
    key(stat);
    stat->add_flag("--local", raw_.local, "from the directories in /dev/shm, without any daemon");
    key(verb(app_, "exists", "does a key have a value: yes (0) or no (1)", Verb::exists));
    CLI::App* list = verb(app_, "list", "keys in byte order", Verb::list);
    paging(list);
    list->add_flag("--keys", options_.keysOnly, "the keys alone, as they are, one a line");
    zeroEnded(list);
    prefix(verb(app_, "count", "number of keys", Verb::count));

    CLI::App* lease = app_.add_subcommand("lease", "key leases");
    lease->require_subcommand(1)->fallthrough()->group("Verbs");
    verb(*lease, "grant", "begin a key lease and print its id", Verb::leaseGrant)
        ->add_option("TTL", raw_.ttl, "seconds that it lives unless it is kept alive")
        ->required();
    for (const auto& [name, text, value] : {std::tuple{"keepalive", "let a key lease live for its time again", Verb::leaseKeepAlive},
                                            std::tuple{"revoke", "end a key lease and delete its keys", Verb::leaseRevoke}}) {
      verb(*lease, name, text, value)->add_option("ID", options_.lease, "the lease")->required()->check(refuseNoNumber);
    }
    verb(*lease, "list", "key leases that live: id, time to live, what is left of it, number of keys", Verb::leaseList);
  }

  void addOperatorVerbs() {
    verb(app_, "status", "the cluster at a glance", Verb::status);
    verb(app_, "members", "owners and what their segments hold", Verb::members)
        ->add_flag("--wide", options_.wide, "also incarnations, addresses and labels");
    paging(verb(app_, "routes", "what the master knows of keys", Verb::routes));
    verb(app_, "metrics", "the /metrics page of a process, or of all", Verb::metrics)
        ->add_option("PROCESS", options_.process, "master, NODE or NODE/ssdd");
    CLI::App* drain = verb(app_, "drain", "bring a node's values to others, and let it leave for good", Verb::drain);
    drain->add_option("NODE", options_.nodes, "the node")->required()->expected(1)->allow_extra_args(false);
    drain->add_flag("!--no-wait", options_.wait, "only begin");
    drain->add_flag("--cancel", options_.cancel, "take back a drain whose node has not left");
    CLI::App* evict = verb(app_, "evict", "let values go until no more than a share of each segment is in use", Verb::evict);
    evict->add_option("NODE", options_.nodes, "only of this node")->expected(1)->allow_extra_args(false);
    evict->add_option("--to", options_.percent, "percent of the segment, 0 to 100; must be given")
        ->required()
        ->check(CLI::Range(0, 100))
        ->option_text("PERCENT");
    evict->add_flag("!--no-wait", options_.wait, "only begin");
    verb(app_, "clean", "remove what nodes that have ended left in /dev/shm", Verb::clean)
        ->add_option("NODE", options_.nodes, "these nodes (default: all that have ended)");
    verb(app_, "pins", "who holds which value (from /dev/shm alone)", Verb::pins);
    verb(app_, "rings", "command rings and counters of the clients (from /dev/shm alone)", Verb::rings);
    verb(app_, "ssd", "the SSD tier: devices, shards, counters (from /dev/shm alone)", Verb::ssd);
    verb(app_, "scrub", "read and check all that is on the SSD", Verb::scrub);
  }

  void addSupervisorVerbs() {
    CLI::App* config = app_.add_subcommand("config", "the configuration");
    config->require_subcommand(1)->fallthrough()->group("Verbs");
    verb(*config, "check", "check a configuration file", Verb::configCheck)->add_option("FILE", options_.file, "the file")->required();
    verb(*config, "show", "the configuration in force, all keys", Verb::configShow);
    verb(app_, "doctor", "is this host fit for Fluxon, and what is to be done", Verb::doctor);
    CLI::App* up = verb(app_, "up", "run a cluster on this host: a master, the owners of [up] nodes, and their ssdds", Verb::up);
    up->add_flag("--detach", options_.detach, "go to the background once everything is ready");
    up->add_option("--log-dir", options_.logDir,
                   "with --detach: folder of the logs (default: STATE_DIR/log; without a master here, a folder for the root in it)")
        ->option_text("DIR");
    verb(app_, "down", "stop what up runs", Verb::down);
  }

  CLI::App& app_;
  Options& options_;
  Raw& raw_;
  std::vector<const CLI::Option*> files_;  // those of options_.file
  const CLI::Option* prefix_ = nullptr;    // that of delete
  std::vector<std::string> helpOn_;        // verb, and verb below it
};

// What CLI11 cannot check.
Error check(Options& options, const Raw& raw) {
  for (std::string& each : options.keys) unshield(each);
  for (std::string* each : {&options.file, &options.prefix, &options.after, &options.process, &options.configPath, &options.logDir}) {
    unshield(*each);
  }
  options.format = raw.json ? Format::json : Format::table;
  if (raw.local && options.verb == Verb::stat) options.verb = Verb::statLocal;
  if (raw.timeout) {
    const Result<uint64_t> timeout = parseSeconds("--timeout", *raw.timeout, kMostTimeoutS);
    if (!timeout) return timeout.error();
    options.timeoutMs = static_cast<uint32_t>(timeout.value());
  }
  if (options.verb == Verb::leaseGrant) {
    const Result<uint64_t> ttl = parseSeconds("TTL", raw.ttl, kMostLeaseS);
    if (!ttl) return ttl.error();
    options.ttlMs = ttl.value();
  }
  for (const auto& [option, name] : {std::pair{"--cluster", options.cluster}, std::pair{"--node", options.node}}) {
    if (!name.empty() && !validName(name)) return {Code::invalidArgument, std::string(option) + " '" + name + "' (" + kNames + ")"};
  }
  return {};
}

Error loadConfig(Options& options) {
  if (options.verb == Verb::configCheck) return {};
  if (options.configPath.empty() && ::access(kSystemConfig, F_OK) == 0) options.configPath = kSystemConfig;
  Result<Config> config = Config::load(options.configPath);
  if (!config && options.verb == Verb::down) {
    // What runs was started with another one, which may be gone.
    return {config.error().code, config.error().detail +
                                     " (to stop a cluster without it: FLUXON_SHM_ROOT=ROOT fluxonctl "
                                     "--config /dev/null --cluster CLUSTER down)"};
  }
  if (!config) return config.error();
  options.config = std::move(config).value();
  const bool fixed = options.verb == Verb::up || options.verb == Verb::configShow;
  if (fixed && !options.cluster.empty() && options.cluster != options.config.common.cluster) {
    return {Code::invalidArgument, "--cluster " + options.cluster +
                                       " (this verb takes the cluster from the configuration: " + options.config.common.cluster + ")"};
  }
  if (options.cluster.empty()) options.cluster = options.config.common.cluster;
  return {};
}

// One line for what CLI11 refuses.
std::string explain(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<std::string> unknown = app.remaining(true);
  const CLI::App* last = &app;
  std::string path = app.get_name();
  while (!last->get_subcommands().empty()) {
    last = last->get_subcommands().front();
    path += " " + last->get_name();
  }
  const bool extras = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  const bool noVerb = extras || dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  if (!verbsOf(*last).empty() && noVerb) return explainVerb(*last, path, unknown.empty() ? "" : unknown.front());
  const std::string what = error.what();
  const std::string dashed = std::any_of(unknown.begin(), unknown.end(), [](const std::string& each) { return each.starts_with("-"); })
                                 ? "; a key, a prefix or a file that begins with - comes after --, as in: fluxonctl get -- -key"
                                 : "";
  return what.find("(accepted") == std::string::npos ? what + " (see " + path + " --help" + dashed + ")" : what;
}

}  // namespace

std::optional<Options> parseOptions(int argc, char** argv, int& status) {
  Options options;
  Raw raw;
  CLI::App app("fluxonctl: a Fluxon cache from the shell. See fluxonctl(1).", "fluxonctl");
  app.formatter(std::make_shared<PlainHelp>());
  app.set_version_flag("--version", "fluxonctl " FLUXON_VERSION);
  app.require_subcommand(1);
  app.add_option("--config", options.configPath,
                 "configuration file (fluxon.toml(5)); default: $FLUXON_CONFIG, else /etc/fluxon/fluxon.toml if it exists")
      ->envname("FLUXON_CONFIG")
      ->option_text("FILE");
  app.add_option("--cluster", options.cluster, "name of the cluster (default: the configuration's)")->option_text("NAME");
  app.add_option("--node", options.node,
                 "name of the node (default: the first that runs on this host; pins, rings, ssd, scrub, stat --local, up, doctor: all)")
      ->option_text("NAME");
  app.add_option("--timeout", raw.timeout,
                 "seconds that a call may take (default: 10); of up: until all is ready, of scrub: all of it (no limit); of down: 8")
      ->option_text("SECONDS");
  app.add_flag("--json", raw.json, "print one JSON object a line");
  app.footer(
      "Exit status: 0; 1 a miss, or damage that scrub has found; 64 usage; 65 damaged or refused data; 69 not running;\n"
      "71 operating system; 73 the key exists; 75 try again; 76 protocol; 77 denied; 78 configuration.");
  Verbs verbs(app, options, raw);

  std::vector<std::string> arguments;  // CLI11 takes them from the back
  for (int i = argc - 1; i > 0; --i) arguments.push_back(shielded(argv[i]));
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {
      std::ostringstream text;  // help or version: printed here, so that a failed write is seen
      status = app.exit(error, text, text);
      emit(text.str());
      return std::nullopt;
    }
    status = fail(Code::invalidArgument, explain(app, error));
    return std::nullopt;
  }
  if (options.verb == Verb::help) {
    const Result<std::string> text = verbs.help();
    if (text) emit(text.value());
    status = text ? 0 : fail(text.error().code, text.error().detail);
    return std::nullopt;
  }
  Error error = verbs.refuseEmptyFile();
  if (error.ok()) error = verbs.refuseUnclearKeys();
  if (error.ok()) error = check(options, raw);
  if (!error.ok()) {
    status = fail(error);
    return std::nullopt;
  }
  if (error = loadConfig(options); !error.ok()) {
    status = fail(error);
    return std::nullopt;
  }
  return options;
}

}  // namespace fluxon::ctl
