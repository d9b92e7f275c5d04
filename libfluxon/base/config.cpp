#include "base/config.h"

#include <arpa/inet.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <tuple>

#include <toml++/toml.h>

#include "base/ids.h"
#include "base/json.h"
#include "base/size.h"

namespace fluxon {
namespace {

// One key of a section: reads its value into the configuration, or says what is accepted.
struct Field {
  const char* accepted;
  std::function<bool(const toml::node&)> read;
};
using Section = std::map<std::string, Field>;

Field text(std::string& to) {
  return {"a string", [&to](const toml::node& node) {
            if (!node.is_string()) return false;
            to = node.as_string()->get();
            return true;
          }};
}
Field name(std::string& to) {
  return {"a name of 1 to 32 of A-Z a-z 0-9 _ - .", [&to](const toml::node& node) {
            if (!node.is_string() || !validName(node.as_string()->get())) return false;
            to = node.as_string()->get();
            return true;
          }};
}
Field flag(bool& to) {
  return {"true or false", [&to](const toml::node& node) {
            if (!node.is_boolean()) return false;
            to = node.as_boolean()->get();
            return true;
          }};
}
Field number(uint64_t& to, const char* accepted, int64_t least, int64_t most) {
  return {accepted, [&to, least, most](const toml::node& node) {
            if (!node.is_integer()) return false;
            const int64_t value = node.as_integer()->get();
            if (value < least || value > most) return false;
            to = static_cast<uint64_t>(value);
            return true;
          }};
}
Field duration(Duration& to, const char* accepted, int64_t least, int64_t most) {
  return {accepted, [&to, least, most](const toml::node& node) {
            if (!node.is_integer()) return false;
            const int64_t value = node.as_integer()->get();
            if (value < least || value > most) return false;
            to = milliseconds(value);
            return true;
          }};
}
Field size(uint64_t& to, const char* accepted, uint64_t least, uint64_t most) {
  return {accepted, [&to, least, most](const toml::node& node) {
            if (node.is_integer()) {
              const int64_t value = node.as_integer()->get();
              if (value < 0 || static_cast<uint64_t>(value) < least || static_cast<uint64_t>(value) > most) return false;
              to = static_cast<uint64_t>(value);
              return true;
            }
            if (!node.is_string()) return false;
            const Result<uint64_t> bytes = parseSize(node.as_string()->get(), least);
            if (!bytes || bytes.value() > most) return false;
            to = bytes.value();
            return true;
          }};
}
Field listen(Endpoint& to) {
  return {"\"off\" or \"ADDRESS:PORT\" (port 0: the kernel chooses)", [&to](const toml::node& node) {
            if (!node.is_string()) return false;
            const Result<Endpoint> address = parseEndpoint(node.as_string()->get());
            if (address) to = address.value();
            return address.ok();
          }};
}
Field remote(Endpoint& to) {
  return {"\"\" or \"HOST:PORT\", port 1 to 65535", [&to](const toml::node& node) {
            if (!node.is_string()) return false;
            to = {false, "", 0};
            if (node.as_string()->get().empty()) return true;
            const Result<Endpoint> address = parseEndpoint(node.as_string()->get());
            if (!address || !address.value().enabled || address.value().port == 0 || isAnyAddress(address.value())) return false;
            to = address.value();
            return true;
          }};
}
// With a port or without one.
Field host(std::string& to) {
  return {"\"\", \"ADDRESS\" or \"ADDRESS:PORT\" that others can reach", [&to](const toml::node& node) {
            if (!node.is_string()) return false;
            to = node.as_string()->get();
            if (to.empty()) return true;
            const Result<Endpoint> whole = parseEndpoint(to);
            const Result<Endpoint> address = whole ? whole : parseEndpoint(to + ":1");
            return address && address.value().enabled && address.value().port != 0 && !isAnyAddress(address.value());
          }};
}
Field nameOrNone(std::string& to) {
  return {"\"\" or a name of 1 to 32 of A-Z a-z 0-9 _ - .", [&to](const toml::node& node) {
            if (!node.is_string() || !(node.as_string()->get().empty() || validName(node.as_string()->get()))) return false;
            to = node.as_string()->get();
            return true;
          }};
}
Field names(std::vector<std::string>& to) {
  return {"a list of different node names", [&to](const toml::node& node) {
            if (!node.is_array()) return false;
            to.clear();
            for (const toml::node& item : *node.as_array()) {
              if (!item.is_string() || !validName(item.as_string()->get())) return false;
              for (const std::string& earlier : to) {
                if (earlier == item.as_string()->get()) return false;
              }
              to.push_back(item.as_string()->get());
            }
            return true;
          }};
}
Field oneOf(std::string& to, const char* accepted, std::vector<std::string> values) {
  return {accepted, [&to, values = std::move(values)](const toml::node& node) {
            if (!node.is_string()) return false;
            for (const std::string& value : values) {
              if (value == node.as_string()->get()) return to = value, true;
            }
            return false;
          }};
}

std::map<std::string, Section> schemaOf(Config& config) {
  constexpr int64_t kDay = 86'400'000;
  return {
      {"common",
       {{"cluster", name(config.common.cluster)},
        {"shm_root", text(config.common.shmRoot)},
        {"shm_group", text(config.common.shmGroup)},
        {"log_level", oneOf(config.common.logLevel, "\"debug\", \"info\", \"warn\" or \"error\"", {"debug", "info", "warn", "error"})},
        {"secret_file", text(config.common.secretFile)},
        {"master", remote(config.common.master)},
        {"tls_ca", text(config.common.tlsCa)},
        {"tls_certificate", text(config.common.tlsCertificate)},
        {"tls_key", text(config.common.tlsKey)}}},
      {"master",
       {{"state_dir", text(config.master.stateDir)},
        {"http", listen(config.master.http)},
        {"listen", listen(config.master.listen)},
        {"lease_ms", duration(config.master.lease, "milliseconds from 200 to 3600000", 200, 3'600'000)},
        {"put_wait_ms", duration(config.master.putWait, "milliseconds from 0 to 3600000", 0, 3'600'000)},
        {"min_key_lease_ms", duration(config.master.minimumKeyLease, "milliseconds from 1 to 86400000", 1, kDay)}}},
      {"owner",
       {{"node", name(config.owner.node)},
        {"segment_size", size(config.owner.segmentBytes, "a size of 1 MiB to 1024 TiB: \"256MiB\", \"1.5GB\", bytes", kMiB, 1024 * kTiB)},
        {"max_keys", number(config.owner.maxKeys, "a number from 16 to 268435456", 16, int64_t{1} << 28)},
        {"max_clients", number(config.owner.maxClients, "a number from 1 to 65536", 1, 65536)},
        {"populate", flag(config.owner.populate)},
        {"http", listen(config.owner.http)},
        {"link", listen(config.owner.link)},
        {"advertise", host(config.owner.advertise)},
        {"label", nameOrNone(config.owner.label)}}},
      {"up", {{"nodes", names(config.up.nodes)}}},
  };
}

std::string position(const std::string& file, const toml::source_region& source) { return file + ":" + std::to_string(source.begin.line); }

std::string known(const std::map<std::string, Field>& section) {
  std::string keys;
  for (const auto& [key, field] : section) keys += (keys.empty() ? "" : ", ") + key;
  return keys;
}

// What no key can be judged for alone; ok, or the error of the whole.
Error checkTogether(const Config& config, const toml::table& document, const std::string& file) {
  const auto refuse = [&](const char* section, const char* key, const std::string& why) {
    const auto node = document[section][key];
    const std::string where = node ? position(file, node.node()->source()) : file;
    return Error{Code::badConfig, where + ": " + section + "." + key + " " + why};
  };
  const Config::Common& common = config.common;
  using Listening = std::tuple<const char*, const char*, const Endpoint&>;
  for (const auto& [section, key, address] : {Listening{"master", "listen", config.master.listen}, {"owner", "link", config.owner.link}}) {
    if (address.enabled && !isLoopback(address) && common.secretFile.empty()) {
      return refuse(section, key, "= \"" + toString(address) + "\" can be reached from other hosts and needs common.secret_file "
                                  "(accepted without one: loopback, such as \"127.0.0.1:0\")");
    }
  }
  if (common.tlsCertificate.empty() != common.tlsKey.empty()) {
    const bool certificate = !common.tlsCertificate.empty();
    return refuse("common", certificate ? "tls_certificate" : "tls_key",
                  std::string("needs common.") + (certificate ? "tls_key" : "tls_certificate") + " (accepted: both or neither)");
  }
  if (config.owner.link.enabled && isAnyAddress(config.owner.link) && config.owner.advertise.empty()) {
    return refuse("owner", "link", "= \"" + toString(config.owner.link) + "\" tells other owners no address and needs owner.advertise");
  }
  return {};
}

void fillDefaults(Config& config) {
  if (config.owner.node.empty()) {
    char host[65] = {};
    ::gethostname(host, sizeof host - 1);
    const std::string shortened = std::string(host).substr(0, kMaxNameBytes);
    config.owner.node = validName(shortened) ? shortened : "node0";
  }
  if (config.up.nodes.empty()) config.up.nodes = {config.owner.node};
  if (config.master.stateDir.empty()) {
    const char* state = std::getenv("XDG_STATE_HOME");
    const char* home = std::getenv("HOME");
    const std::string base = ::geteuid() == 0 ? "/var/lib" : state && *state ? state : home ? std::string(home) + "/.local/state" : "/tmp";
    config.master.stateDir = base + "/fluxon/" + config.common.cluster;
  }
}

}  // namespace

Result<Endpoint> parseEndpoint(const std::string& text) {
  Endpoint address;
  if (text == "off") {
    address.enabled = false;
    return address;
  }
  const size_t colon = text.rfind(':');
  const auto refuse = [&] { return Error{Code::invalidArgument, "address '" + text + "' (accepted: off, or ADDRESS:PORT)"}; };
  if (colon == std::string::npos || colon == 0 || colon + 1 == text.size() || text.size() - colon > 6) return refuse();
  address.host = text.substr(0, colon);
  // "*", a name or IPv4 address, or an IPv6 address in brackets.
  const bool bracketed = address.host.size() > 2 && address.host.front() == '[' && address.host.back() == ']';
  const std::string inner = bracketed ? address.host.substr(1, address.host.size() - 2) : address.host;
  for (const char c : inner) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '-' || c == '_';
    if (!plain && !(bracketed && (c == ':' || c == '%')) && inner != "*") return refuse();
  }
  unsigned port = 0;
  for (const char c : text.substr(colon + 1)) {
    if (c < '0' || c > '9') return refuse();
    port = port * 10 + static_cast<unsigned>(c - '0');
  }
  if (port > 65535) return refuse();
  address.port = static_cast<uint16_t>(port);
  return address;
}

std::string toString(const Endpoint& address) {
  return address.enabled ? address.host + ":" + std::to_string(address.port) : "off";
}

std::string bareHost(const Endpoint& address) {
  const bool bracketed = address.host.size() > 2 && address.host.front() == '[';
  return bracketed ? address.host.substr(1, address.host.size() - 2) : address.host;
}

bool isLoopback(const Endpoint& address) {
  if (address.host == "localhost") return true;
  in_addr v4{};
  if (::inet_pton(AF_INET, address.host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6{};
  return ::inet_pton(AF_INET6, bareHost(address).c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

bool isAnyAddress(const Endpoint& address) {
  if (address.host == "*") return true;
  in_addr v4{};
  if (::inet_pton(AF_INET, address.host.c_str(), &v4) == 1) return v4.s_addr == 0;
  in6_addr v6{};
  return ::inet_pton(AF_INET6, bareHost(address).c_str(), &v6) == 1 && IN6_IS_ADDR_UNSPECIFIED(&v6);
}

Result<Config> Config::parse(const std::string& text, const std::string& file) {
  Config config;
  toml::table document;
  try {
    document = toml::parse(text, file);
  } catch (const toml::parse_error& error) {
    return Error{Code::badConfig, position(file, error.source()) + ": " + std::string(error.description())};
  }
  std::map<std::string, Section> schema = schemaOf(config);
  for (const auto& [sectionName, sectionNode] : document) {
    const auto section = schema.find(std::string(sectionName.str()));
    if (section == schema.end() || !sectionNode.is_table()) {
      return Error{Code::badConfig, position(file, sectionNode.source()) + ": unknown section '" + std::string(sectionName.str()) +
                                        "' (accepted: [common], [master], [owner], [up])"};
    }
    for (const auto& [key, value] : *sectionNode.as_table()) {
      const auto field = section->second.find(std::string(key.str()));
      const std::string where = position(file, value.source()) + ": ";
      if (field == section->second.end()) {
        return Error{Code::badConfig, where + "unknown key '" + std::string(key.str()) + "' in [" + section->first +
                                          "] (accepted: " + known(section->second) + ")"};
      }
      if (!field->second.read(value)) {
        std::ostringstream given;
        value.visit([&](const auto& v) { given << v; });
        std::string shown = given.str();  // may have lines
        std::replace(shown.begin(), shown.end(), '\n', ' ');
        return Error{Code::badConfig, where + std::string(key.str()) + " = " + shown + " (accepted: " + field->second.accepted + ")"};
      }
    }
  }
  if (Error error = checkTogether(config, document, file); !error.ok()) return error;
  fillDefaults(config);
  return config;
}

Result<Config> Config::load(const std::string& path) {
  if (path.empty()) return parse("", "defaults");
  std::ifstream file(path, std::ios::binary);
  if (!file) return Error{Code::badConfig, "open " + path + ": " + std::strerror(errno)};
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return Error{Code::badConfig, "read " + path + ": " + std::strerror(EISDIR)};
  std::ostringstream text;
  text << file.rdbuf();
  if (file.bad()) return Error{Code::badConfig, "read " + path + ": " + std::strerror(errno)};
  return parse(text.str(), path);
}

std::string Config::show() const {
  toml::array nodes;
  for (const std::string& node : up.nodes) nodes.push_back(node);
  std::ostringstream out;
  const auto line = [&](const char* key, const auto& value) { out << key << " = " << value << "\n"; };
  const auto quoted = [&](const char* key, const std::string& value) { line(key, jsonString(value)); };  // escapes as TOML's
  out << "[common]\n";
  quoted("cluster", common.cluster);
  quoted("shm_root", common.shmRoot);
  quoted("shm_group", common.shmGroup);
  quoted("log_level", common.logLevel);
  quoted("secret_file", common.secretFile);
  quoted("master", common.master.enabled ? toString(common.master) : "");
  quoted("tls_ca", common.tlsCa);
  quoted("tls_certificate", common.tlsCertificate);
  quoted("tls_key", common.tlsKey);
  out << "\n[master]\n";
  quoted("state_dir", master.stateDir);
  quoted("http", toString(master.http));
  quoted("listen", toString(master.listen));
  line("lease_ms", master.lease.ms());
  line("put_wait_ms", master.putWait.ms());
  line("min_key_lease_ms", master.minimumKeyLease.ms());
  out << "\n[owner]\n";
  quoted("node", owner.node);
  line("segment_size", owner.segmentBytes);
  line("max_keys", owner.maxKeys);
  line("max_clients", owner.maxClients);
  line("populate", owner.populate ? "true" : "false");
  quoted("http", toString(owner.http));
  quoted("link", toString(owner.link));
  quoted("advertise", owner.advertise);
  quoted("label", owner.label);
  out << "\n[up]\n";
  line("nodes", nodes);
  return out.str();
}

}  // namespace fluxon
