// A page of metrics in the Prometheus text format. Values are put on the page when it is asked for: they live where they are
// counted. Names: fluxon_<process>_<noun>_<unit>[_total].
#pragma once

#include <map>
#include <string>
#include <vector>

namespace fluxon::rpc {

class MetricsPage {
 public:
  MetricsPage();
  ~MetricsPage();
  MetricsPage(const MetricsPage&) = delete;
  MetricsPage& operator=(const MetricsPage&) = delete;

  using Labels = std::map<std::string, std::string>;
  void counter(const std::string& name, const std::string& help, double value, const Labels& labels = {});
  void gauge(const std::string& name, const std::string& help, double value, const Labels& labels = {});
  // `bounds` are the upper bounds of all buckets but the last; `counts` has one more entry.
  void histogram(const std::string& name, const std::string& help, const std::vector<double>& bounds, const std::vector<uint64_t>& counts,
                 double sum);
  std::string text() const;

 private:
  struct State;
  State* state_;
};

}  // namespace fluxon::rpc
