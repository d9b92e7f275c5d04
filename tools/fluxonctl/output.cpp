#include "output.h"

#include <wchar.h>
#include <wctype.h>

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstring>

#include "base/json.h"
#include "base/size.h"

namespace fluxon::ctl {
namespace {

struct Look {
  bool printable = true;  // all of it, which is UTF-8
  size_t columns = 0;
};

Look lookAt(const std::string& text) {
  if (!isUtf8(text)) return {false, 0};
  Look look;
  mbstate_t state{};
  for (size_t at = 0; at < text.size();) {
    wchar_t wide = 0;
    const size_t n = ::mbrtowc(&wide, text.data() + at, text.size() - at, &state);
    if (n == static_cast<size_t>(-1) || n == static_cast<size_t>(-2)) return {false, 0};
    at += n == 0 ? 1 : n;
    if (!::iswprint(static_cast<wint_t>(wide))) look.printable = false;
    look.columns += static_cast<size_t>(std::max(0, ::wcwidth(wide)));
  }
  return look;
}

int writeError = 0;  // errno of the first failed write to stdout

std::string decimal(uint64_t value) { return std::to_string(value); }

}  // namespace

void startOutput() { std::setlocale(LC_CTYPE, "C.UTF-8"); }

std::string quoted(const std::string& text) {
  static constexpr const char* kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_@%+=:,./-";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  const bool valid = lookAt(text).printable;
  if (valid && text.find('\'') == std::string::npos) return "'" + text + "'";
  std::string out = "$'";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\'' || c == '\\') {
      out += {'\\', c};
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7F || (byte >= 0x80 && !valid)) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\%03o", byte);  // three digits: the next character cannot be taken for one
      out += escaped;
    } else {
      out += c;
    }
  }
  return out + "'";
}

std::string base64(const char* data, size_t bytes) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes + 2) / 3 * 4);
  for (size_t at = 0; at < bytes; at += 3) {
    const auto byte = [&](size_t i) { return i < bytes ? static_cast<unsigned char>(data[i]) : 0u; };
    const unsigned group = byte(at) << 16 | byte(at + 1) << 8 | byte(at + 2);
    out += kDigits[group >> 18];
    out += kDigits[group >> 12 & 63];
    out += at + 1 < bytes ? kDigits[group >> 6 & 63] : '=';
    out += at + 2 < bytes ? kDigits[group & 63] : '=';
  }
  return out;
}

std::string formatDuration(uint64_t ms) {
  const uint64_t s = ms / 1000;
  if (s >= 86400) return std::to_string(s / 86400) + " d " + std::to_string(s / 3600 % 24) + " h";
  if (s >= 3600) return std::to_string(s / 3600) + " h " + std::to_string(s / 60 % 60) + " min";
  if (s >= 60) return std::to_string(s / 60) + " min " + std::to_string(s % 60) + " s";
  return std::to_string(s) + "." + std::to_string(ms / 100 % 10) + " s";
}

Cell text(const std::string& name, const std::string& value) { return {name, value.empty() ? "-" : value, jsonString(value)}; }
Cell number(const std::string& name, uint64_t value) { return {name, decimal(value), decimal(value), Cell::Align::right}; }
Cell size(const std::string& name, uint64_t bytes) { return {name, formatSize(bytes), decimal(bytes), Cell::Align::right}; }
Cell flag(const std::string& name, bool value) { return {name, value ? "yes" : "no", value ? "true" : "false"}; }
Cell id(const std::string& name, uint64_t value) { return {name, decimal(value), jsonString(decimal(value)), Cell::Align::right}; }
Cell version(PutId putId) { return {"put_id", toString(putId), jsonString(toString(putId)), Cell::Align::right}; }
Cell urlCell(const std::string& http) {
  if (http.empty()) return {"metrics", "off", "null"};
  return text("metrics", "http://" + http + "/metrics");
}
Cell list(const std::string& name, const std::vector<std::string>& values) {
  std::string human, json;
  for (const std::string& value : values) {
    human += (human.empty() ? "" : ",") + value;
    json += (json.empty() ? "" : ",") + jsonString(value);
  }
  return {name, human.empty() ? "-" : human, "[" + json + "]"};
}
Cell jsonOnly(Cell cell) {
  cell.where = Cell::Where::jsonOnly;
  return cell;
}

std::vector<Cell> keyCells(const std::string& key) {
  std::vector<Cell> cells{{"key", quoted(key), jsonString(key)}};
  if (!isUtf8(key)) cells.push_back(jsonOnly(text("key_base64", base64(key.data(), key.size()))));
  return cells;
}

std::string jsonObject(const std::vector<Cell>& cells) {
  JsonObject object;
  for (const Cell& cell : cells) object.raw(cell.name, cell.json);
  return object.str();
}

void Rows::add(const std::vector<Cell>& cells) {
  empty_ = false;
  if (format_ == Format::json) {
    emit(jsonObject(cells) + "\n");
    return;
  }
  std::vector<std::string> line;
  for (const Cell& cell : cells) {
    if (cell.where == Cell::Where::jsonOnly) continue;
    if (columns_.size() == line.size()) {
      std::string title = cell.name;
      for (char& c : title) c = c == '_' ? ' ' : static_cast<char>(std::toupper(c));
      columns_.push_back({title, cell.align, title.size()});
    }
    Column& column = columns_[line.size()];
    column.width = std::max(column.width, lookAt(cell.human).columns);
    line.push_back(cell.human);
  }
  pending_.push_back(std::move(line));
}

void Rows::print(const std::vector<std::string>& line) const {
  std::string out;
  for (size_t i = 0; i < line.size(); ++i) {
    const size_t columns = lookAt(line[i]).columns;
    const std::string gap(columns_[i].width > columns ? columns_[i].width - columns : 0, ' ');
    out += columns_[i].align == Cell::Align::right ? gap + line[i] : i + 1 < line.size() ? line[i] + gap : line[i];
    out += i + 1 < line.size() ? "  " : "\n";
  }
  emit(out);
}

void Rows::flush() {
  if (!pending_.empty() && !titled_) {
    std::vector<std::string> titles;
    for (const Column& column : columns_) titles.push_back(column.title);
    print(titles);
    titled_ = true;
  }
  for (const std::vector<std::string>& line : pending_) print(line);
  pending_.clear();
}

std::string complaint(const std::string& message) {
  std::string line = "fluxonctl: " + message;
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  return line + '\n';
}

void complain(const std::string& message) {
  const std::string line = complaint(message);
  std::fflush(stdout);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

int fail(const Error& error) {
  complain(error.message());
  return sysexit(error.code);
}

int fail(Code code, const std::string& message) {
  complain(message);
  return sysexit(code);
}

void emit(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() && writeError == 0) writeError = errno;
}

int finishOutput(int status) {
  if (std::fflush(stdout) != 0 && writeError == 0) writeError = errno;
  if (status != 0 || writeError == 0 || writeError == EPIPE) return status;  // a reader that has seen enough, such as head, is no error
  return fail(systemError("write to stdout", writeError));
}

}  // namespace fluxon::ctl
