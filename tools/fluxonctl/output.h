// What fluxonctl prints. The rows of one answer are described once: for people they become an aligned table, with --json one JSON
// object a line. Field names are stable; a column's title is its field's name in capitals.
//
// Keys are bytes. For people a key is a word of the shell, quoted if it has anything but A-Za-z0-9_@%+=:,./- ('a b', $'a\n'). In JSON
// a key that is not UTF-8 comes twice: "key" by jsonString(), for reading, and "key_base64", exact.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace fluxon::ctl {

enum class Format { table, json };

// Lets the printable characters of UTF-8 pass in tables. Once, before any output.
void startOutput();

// `text` as one word of the shell: as it is, 'a b', or $'a\n' where single quotes cannot show it.
std::string quoted(const std::string& text);
std::string base64(const char* data, size_t bytes);

// "1 d 2 h", "3 min 4 s", "5.2 s".
std::string formatDuration(uint64_t ms);

// One field of a row: how people and how programs read it.
struct Cell {
  std::string name;
  std::string human;
  std::string json;  // a JSON value
  enum class Align { left, right } align = Align::left;
  enum class Where { everywhere, jsonOnly } where = Where::everywhere;
};
Cell text(const std::string& name, const std::string& value);
Cell number(const std::string& name, uint64_t value);
Cell size(const std::string& name, uint64_t bytes);  // "1.5 GiB"; in JSON bytes
Cell flag(const std::string& name, bool value);
Cell id(const std::string& name, uint64_t value);  // of 64 bits, a string in JSON: readers round numbers from 2^53 on
Cell version(PutId putId);                         // "put_id": "term.sequence"
Cell list(const std::string& name, const std::vector<std::string>& values);
// Of a process that serves its pages at the address; empty: it does not.
Cell urlCell(const std::string& http);  // "metrics": "http://127.0.0.1:9301/metrics"
Cell jsonOnly(Cell cell);
// `key`, and for one that is not UTF-8 `key_base64`.
std::vector<Cell> keyCells(const std::string& key);

// Cells as one JSON object.
std::string jsonObject(const std::vector<Cell>& cells);

class Rows {
 public:
  explicit Rows(Format format) : format_(format) {}
  Rows(const Rows&) = delete;
  Rows& operator=(const Rows&) = delete;
  ~Rows() { flush(); }

  void add(const std::vector<Cell>& cells);
  // Prints what has been added, so that long answers come page by page; columns never get narrower.
  void flush();
  // Nothing has been added.
  bool empty() const { return empty_; }

 private:
  struct Column {
    std::string title;
    Cell::Align align;
    size_t width;
  };
  void print(const std::vector<std::string>& line) const;

  Format format_;
  std::vector<Column> columns_;
  bool titled_ = false, empty_ = true;
  std::vector<std::vector<std::string>> pending_;
};

// "fluxonctl: <message>" as one line on stderr; returns the exit status of the code.
int fail(const Error& error);
int fail(Code code, const std::string& message);
// The same for something that does not end the run.
void complain(const std::string& message);
// That line.
std::string complaint(const std::string& message);

// Text on stdout, buffered. A failed write shows in finishOutput().
void emit(const std::string& text);
// Forces out what stdout has buffered: `status`, or what a failed write makes of it.
int finishOutput(int status);

}  // namespace fluxon::ctl
