//! Charts of a simulation: shares of users and queues over time, utilisation, and waiting times.

use std::collections::BTreeMap;

use crate::{
    measure::{Bucket, Results, Series, to_f64, wait_ms},
    svg_chart::{Axis, COLOURS, Chart},
};

/// Number of users or queues drawn separately. The others are drawn together.
const MAX_DRAWN: usize = 8;
/// Ticks of the axis of waiting times: seconds and label.
const WAIT_TICKS: [(u64, &str); 10] = [
    (1, "1 s"),
    (10, "10 s"),
    (60, "1 min"),
    (600, "10 min"),
    (3_600, "1 h"),
    (36_000, "10 h"),
    (86_400, "1 d"),
    (864_000, "10 d"),
    (8_640_000, "100 d"),
    (86_400_000, "1000 d"),
];

/// Returns all charts as file names with their contents.
pub fn draw_all(results: &Results, policy: &str) -> Vec<(&'static str, String)> {
    let series = &results.series;
    let users = ShareOwners {
        title: "user",
        names: &series.user_names,
        placeholder: "(no user)",
        held: |bucket| &bucket.held,
    };
    let queues = ShareOwners {
        title: "queue",
        names: &series.queue_names,
        placeholder: "",
        held: |bucket| &bucket.by_queue,
    };
    let mut charts = vec![
        ("shares.svg", draw_shares(series, policy, &users)),
        ("utilisation.svg", draw_utilisation(series, policy)),
        ("waits.svg", draw_waits(results, policy)),
    ];
    if !series.queue_names.is_empty() {
        charts.push(("queues.svg", draw_shares(series, policy, &queues)));
    }
    charts
}

/// Returns a unit in which the window has a readable length, and its milliseconds.
fn time_unit(span_ms: u64) -> (&'static str, f64) {
    match span_ms {
        0..600_000 => ("seconds", 1_000.0),
        600_000..36_000_000 => ("minutes", 60_000.0),
        36_000_000..864_000_000 => ("hours", 3_600_000.0),
        _ => ("days", 86_400_000.0),
    }
}

/// Returns the axis of time, and the length of the window in the unit of the axis.
fn time_axis(series: &Series) -> (Axis, f64) {
    let span = series.last - series.first;
    let (name, ms) = time_unit(span);
    let axis = Axis::linear(
        format!("{name} since the first submission"),
        to_f64(span.into()) / ms,
    );
    (axis, to_f64(span.into()) / ms)
}

/// Returns the middle of each bucket that has samples, and the bucket.
fn bucket_positions(series: &Series, length: f64) -> Vec<(f64, &Bucket)> {
    let count = to_f64(series.buckets.len() as u128);
    let with_samples = series
        .buckets
        .iter()
        .enumerate()
        .filter(|(_, bucket)| bucket.samples > 0);
    with_samples
        .map(|(index, bucket)| ((to_f64(index as u128) + 0.5) / count * length, bucket))
        .collect()
}

/// Converts millionths summed over samples to percent.
fn percent(sum: u64, samples: u64) -> f64 {
    to_f64(sum.into()) / to_f64(samples.into()) / 10_000.0
}

/// The users or queues of a chart of shares.
struct ShareOwners<'a> {
    title: &'a str,
    names: &'a [String],
    /// Name in the legend of an owner whose name is empty.
    placeholder: &'a str,
    /// Returns the holdings by index of the owner.
    held: fn(&Bucket) -> &BTreeMap<usize, u64>,
}

fn draw_shares(series: &Series, policy: &str, owners: &ShareOwners) -> String {
    let mut totals: BTreeMap<usize, u64> = BTreeMap::new();
    for bucket in &series.buckets {
        for (owner, held) in (owners.held)(bucket) {
            *totals.entry(*owner).or_default() += held;
        }
    }
    let mut by_total: Vec<(usize, u64)> = totals.into_iter().collect();
    by_total.sort_by_key(|(owner, held)| (std::cmp::Reverse(*held), *owner));
    let drawn_owners: Vec<usize> = by_total
        .iter()
        .take(MAX_DRAWN)
        .map(|(owner, _)| *owner)
        .collect();
    let (axis, length) = time_axis(series);
    let title = format!("Dominant shares per {}, {policy}", owners.title);
    let mut chart = Chart::new(title, axis, Axis::linear("percent of the cluster", 100.0));
    let positions = bucket_positions(series, length);
    // The areas are stacked. These are the upper edges of the areas drawn so far.
    let mut tops = vec![0.0; positions.len()];
    let mut draw_layer = |chart: &mut Chart, name: &str, colour, held: &dyn Fn(&Bucket) -> u64| {
        let edges = positions.iter().zip(&mut tops).map(|((x, bucket), top)| {
            let low = *top;
            *top += percent(held(bucket), bucket.samples);
            (*x, low, *top)
        });
        let edges: Vec<(f64, f64, f64)> = edges.collect();
        chart.draw_area(name, &edges, colour);
    };
    for (owner, colour) in drawn_owners.iter().zip(COLOURS) {
        let name = match owners.names[*owner].as_str() {
            "" => owners.placeholder,
            name => name,
        };
        let held = |bucket: &Bucket| (owners.held)(bucket).get(owner).copied().unwrap_or(0);
        draw_layer(&mut chart, name, colour, &held);
    }
    if by_total.len() > MAX_DRAWN {
        let name = format!("{} others", by_total.len() - MAX_DRAWN);
        let held = |bucket: &Bucket| {
            let all_holdings = (owners.held)(bucket).iter();
            let others = all_holdings.filter(|(owner, _)| !drawn_owners.contains(owner));
            others.map(|(_, held)| held).sum()
        };
        draw_layer(&mut chart, &name, COLOURS[MAX_DRAWN], &held);
    }
    chart.to_svg()
}

fn draw_utilisation(series: &Series, policy: &str) -> String {
    let (axis, length) = time_axis(series);
    let title = format!("Cpu in use, {policy}");
    let mut chart = Chart::new(title, axis, Axis::linear("percent of all cpu", 100.0));
    let used_percent: Vec<(f64, f64)> = bucket_positions(series, length)
        .into_iter()
        .map(|(x, bucket)| (x, percent(bucket.cpu_used, bucket.samples)))
        .collect();
    chart.draw_line("in use", &used_percent, COLOURS[0]);
    if !used_percent.is_empty() {
        let mean =
            used_percent.iter().map(|(_, y)| y).sum::<f64>() / to_f64(used_percent.len() as u128);
        chart.draw_line("mean", &[(0.0, mean), (length, mean)], COLOURS[3]);
    }
    chart.to_svg()
}

/// Draws the fraction of jobs that waited at most this long, on a logarithmic scale.
fn draw_waits(results: &Results, policy: &str) -> String {
    let done = results
        .outcomes
        .iter()
        .filter(|outcome| outcome.ended.is_some());
    let mut waits: Vec<u64> = done.map(wait_ms).collect();
    waits.sort_unstable();
    let log_scale = |ms: u64| (1.0 + to_f64(ms.into()) / 1000.0).log10();
    let longest = waits.last().copied().unwrap_or(0).max(10_000);
    let ticks = WAIT_TICKS
        .iter()
        .filter(|(seconds, _)| seconds * 1000 <= longest);
    let axis = Axis {
        label: "wait until the first start (logarithmic)".into(),
        max: log_scale(longest),
        ticks: std::iter::once((0.0, "0".to_owned()))
            .chain(ticks.map(|(seconds, text)| (log_scale(seconds * 1000), (*text).to_owned())))
            .collect(),
    };
    let title = format!("Wait distribution, {policy}");
    let mut chart = Chart::new(title, axis, Axis::linear("percent of the jobs", 100.0));
    let count = to_f64(waits.len().max(1) as u128);
    let mut points = Vec::new();
    // Steps finer than a quarter of a percent are not visible.
    let step = (waits.len() / 400).max(1);
    for (index, wait) in waits.iter().enumerate() {
        if index % step == 0 || index + 1 == waits.len() {
            points.push((log_scale(*wait), 100.0 * to_f64(index as u128 + 1) / count));
        }
    }
    chart.draw_line("waited at most", &points, COLOURS[0]);
    chart.to_svg()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_of_time_fits_the_window() {
        assert_eq!(time_unit(5_000).0, "seconds");
        assert_eq!(time_unit(89 * 86_400_000).0, "days");
    }
}
