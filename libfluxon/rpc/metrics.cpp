#include "rpc/metrics.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <limits>

namespace fluxon::rpc {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

struct MetricsPage::State {
  std::vector<MetricFamily> families;

  // Samples of one name stand together whatever the order of calls.
  ClientMetric& add(const std::string& name, const std::string& help, MetricType type, const Labels& labels) {
    MetricFamily* family = nullptr;
    for (MetricFamily& known : families) {
      if (known.name == name) family = &known;
    }
    if (!family) {
      family = &families.emplace_back();
      family->name = name;
      family->help = help;
      family->type = type;
    }
    ClientMetric& metric = family->metric.emplace_back();
    for (const auto& [label, value] : labels) metric.label.push_back({label, value});
    return metric;
  }
};

MetricsPage::MetricsPage() : state_(new State) {}
MetricsPage::~MetricsPage() { delete state_; }

void MetricsPage::counter(const std::string& name, const std::string& help, double value, const Labels& labels) {
  state_->add(name, help, MetricType::Counter, labels).counter.value = value;
}
void MetricsPage::gauge(const std::string& name, const std::string& help, double value, const Labels& labels) {
  state_->add(name, help, MetricType::Gauge, labels).gauge.value = value;
}
void MetricsPage::histogram(const std::string& name, const std::string& help, const std::vector<double>& bounds,
                            const std::vector<uint64_t>& counts, double sum) {
  auto& histogram = state_->add(name, help, MetricType::Histogram, {}).histogram;
  uint64_t total = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    total += counts[i];
    histogram.bucket.push_back({total, i < bounds.size() ? bounds[i] : std::numeric_limits<double>::infinity()});
  }
  histogram.sample_count = total;
  histogram.sample_sum = sum;
}
std::string MetricsPage::text() const { return prometheus::TextSerializer().Serialize(state_->families); }

}  // namespace fluxon::rpc
