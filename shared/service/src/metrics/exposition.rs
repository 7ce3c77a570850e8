//! Metrics in the text format of Prometheus, version 0.0.4. They have the names that a collector
//! would give them. Dashboards and alerts therefore work with scrapes and with a
//! collector.
//!
//! The page contains only metrics of the catalogue. Every series has the resource as labels, as
//! with a collector.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};

use opentelemetry::KeyValue;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, Histogram, MetricData, ResourceMetrics};

use super::{Metric, SCOPE, catalogue};

/// Attributes of the resource that become labels. Those of the library are omitted.
const RESOURCE_KEYS: [&str; 4] = [
    "service.name",
    "service.version",
    "service.instance.id",
    "deployment.environment.name",
];

/// Returns the complete page.
pub(crate) fn render(metrics: &ResourceMetrics) -> String {
    let resource_labels = resource_labels(metrics.resource());
    // Each family is written once, because all samples of a family must follow its header.
    let mut families: BTreeMap<String, String> = BTreeMap::new();
    let our_scopes = metrics
        .scope_metrics()
        .filter(|scope| scope.scope().name() == SCOPE);
    for metric in our_scopes.flat_map(opentelemetry_sdk::metrics::data::ScopeMetrics::metrics) {
        if let Some(described) = catalogue::find(metric.name()) {
            let name = described.prometheus_name();
            let family = families.entry(name.clone());
            let family = family.or_insert_with(|| family_header(&name, described));
            let mut writer = FamilyWriter {
                name: &name,
                resource_labels: &resource_labels,
                text: family,
            };
            writer.write_data(metric.data());
        }
    }
    families.into_values().collect()
}

fn resource_labels(resource: &Resource) -> String {
    let attributes = resource.iter();
    let attributes = attributes.filter(|(key, _)| RESOURCE_KEYS.contains(&key.as_str()));
    let mut labels: Vec<String> = attributes
        .map(|(key, value)| format_label(key.as_str(), &value.as_str()))
        .collect();
    labels.sort_unstable();
    labels.join(",")
}

fn family_header(name: &str, metric: &Metric) -> String {
    let description = metric
        .description
        .replace('\\', "\\\\")
        .replace('\n', "\\n");
    let kind = metric.kind.as_str();
    format!("# HELP {name} {description}\n# TYPE {name} {kind}\n")
}

fn format_label(key: &str, value: &str) -> String {
    let key = key.replace('.', "_");
    let value = value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n");
    format!("{key}=\"{value}\"")
}

/// The text of one metric.
struct FamilyWriter<'a> {
    name: &'a str,
    resource_labels: &'a str,
    text: &'a mut String,
}

impl FamilyWriter<'_> {
    fn write_data(&mut self, data: &AggregatedMetrics) {
        match data {
            AggregatedMetrics::F64(data) => self.write_points(data, |value| value),
            AggregatedMetrics::U64(data) => self.write_points(data, |value| value),
            AggregatedMetrics::I64(data) => self.write_points(data, |value| value),
        }
    }

    fn write_points<T: Copy, V: Display>(
        &mut self,
        data: &MetricData<T>,
        format_value: impl Fn(T) -> V,
    ) {
        match data {
            MetricData::Gauge(gauge) => {
                for point in gauge.data_points() {
                    self.write_sample(
                        "",
                        &self.labels(point.attributes()),
                        format_value(point.value()),
                    );
                }
            }
            MetricData::Sum(sum) => {
                for point in sum.data_points() {
                    self.write_sample(
                        "",
                        &self.labels(point.attributes()),
                        format_value(point.value()),
                    );
                }
            }
            MetricData::Histogram(histogram) => self.write_histogram(histogram, format_value),
            // No metric of ours has this type.
            MetricData::ExponentialHistogram(_) => {}
        }
    }

    /// Writes the buckets of a histogram. The library counts each bucket separately, and the format
    /// needs cumulative counts.
    fn write_histogram<T: Copy, V: Display>(
        &mut self,
        histogram: &Histogram<T>,
        format_value: impl Fn(T) -> V,
    ) {
        for point in histogram.data_points() {
            let labels = self.labels(point.attributes());
            let limits = point.bounds().map(|limit| limit.to_string());
            let limits = limits.chain(["+Inf".to_owned()]);
            let mut cumulative = 0;
            for (limit, count) in limits.zip(point.bucket_counts()) {
                cumulative += count;
                let labels = join_labels(&labels, &format_label("le", &limit));
                self.write_sample("_bucket", &labels, cumulative);
            }
            self.write_sample("_sum", &labels, format_value(point.sum()));
            self.write_sample("_count", &labels, point.count());
        }
    }

    fn labels<'b>(&self, attributes: impl Iterator<Item = &'b KeyValue>) -> String {
        let mut labels: Vec<String> = attributes
            .map(|pair| format_label(pair.key.as_str(), &pair.value.as_str()))
            .collect();
        labels.sort_unstable();
        join_labels(&labels.join(","), self.resource_labels)
    }

    fn write_sample(&mut self, suffix: &str, labels: &str, value: impl Display) {
        let name = self.name;
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{name}{suffix}{{{labels}}} {value}");
    }
}

fn join_labels(first: &str, second: &str) -> String {
    let both = [first, second].into_iter().filter(|part| !part.is_empty());
    both.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use opentelemetry::metrics::MeterProvider as _;
    use opentelemetry_sdk::metrics::reader::MetricReader as _;
    use opentelemetry_sdk::metrics::{ManualReader, SdkMeterProvider};

    use super::*;
    use crate::metrics::catalogue::{POOL, ROUND_DURATION, ROUND_PLACEMENTS};

    /// Returns the page after `record` recorded its metrics.
    fn page(record: impl FnOnce(&SdkMeterProvider)) -> String {
        let reader = std::sync::Arc::new(ManualReader::default());
        let scrape_reader = crate::telemetry::reader(std::sync::Arc::clone(&reader));
        let resource = Resource::builder_empty()
            .with_service_name("hayward-test")
            .with_attribute(KeyValue::new("telemetry.sdk.name", "opentelemetry"))
            .build();
        let provider = SdkMeterProvider::builder()
            .with_resource(resource)
            .with_reader(scrape_reader)
            .build();
        record(&provider);
        let mut metrics = ResourceMetrics::default();
        reader.collect(&mut metrics).unwrap();
        render(&metrics)
    }

    #[test]
    fn every_kind_of_metric_has_the_prometheus_format() {
        let page = page(|provider| {
            let meter = provider.meter(SCOPE);
            let count = meter.u64_counter(ROUND_PLACEMENTS.name).build();
            count.add(2, &[POOL.with("b"), KeyValue::new("hayward.class", "a")]);
            count.add(1, &[POOL.with("b"), KeyValue::new("hayward.class", "a")]);
            let durations = meter.f64_histogram(ROUND_DURATION.name);
            let durations = durations.with_boundaries(vec![0.1, 5.0]).build();
            for amount in [0.05, 0.1, 3.0, 9.0] {
                durations.record(amount, &[]);
            }
            let free = meter.f64_gauge("hayward.pool.free").build();
            free.record(1.5, &[POOL.with("a \"b\"\\c\nd")]);
            // One metric is not in the catalogue. The other one is in the catalogue but comes from
            // a foreign scope.
            meter.u64_counter("hayward.unheard_of").build().add(1, &[]);
            let other = provider.meter("other");
            other.u64_counter(ROUND_PLACEMENTS.name).build().add(7, &[]);
        });
        let resource_labels = "service_name=\"hayward-test\"";
        let expected = [
            "# HELP hayward_pool_free free quanta on the nodes of a pool that take new work"
                .to_owned(),
            "# TYPE hayward_pool_free gauge".to_owned(),
            format!(r#"hayward_pool_free{{hayward_pool="a \"b\"\\c\nd",{resource_labels}}} 1.5"#),
            "# HELP hayward_round_duration_seconds duration of rounds and their phases".to_owned(),
            "# TYPE hayward_round_duration_seconds histogram".to_owned(),
            format!(r#"hayward_round_duration_seconds_bucket{{{resource_labels},le="0.1"}} 2"#),
            format!(r#"hayward_round_duration_seconds_bucket{{{resource_labels},le="5"}} 3"#),
            format!(r#"hayward_round_duration_seconds_bucket{{{resource_labels},le="+Inf"}} 4"#),
            format!("hayward_round_duration_seconds_sum{{{resource_labels}}} 12.15"),
            format!("hayward_round_duration_seconds_count{{{resource_labels}}} 4"),
            "# HELP hayward_round_placements_total allocations that rounds granted".to_owned(),
            "# TYPE hayward_round_placements_total counter".to_owned(),
            format!(
                r#"{name}{{hayward_class="a",hayward_pool="b",{resource_labels}}} 3"#,
                name = "hayward_round_placements_total"
            ),
        ];
        let lines: Vec<&str> = page.lines().collect();
        assert_eq!(lines, expected);
    }

    #[test]
    fn every_metric_has_a_unique_prometheus_name() {
        let mut names: Vec<String> = catalogue::all().map(Metric::prometheus_name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
