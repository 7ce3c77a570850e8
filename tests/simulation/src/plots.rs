//! Charts of a simulation: shares of users and queues over time, utilisation, and waiting times.

use std::collections::BTreeMap;

use crate::{
    draw::{Axis, COLOURS, Chart},
    measure::{Bucket, Results, Series, real, wait_ms},
};

/// Number of users or queues drawn separately. The others are drawn together.
const DRAWN: usize = 8;
const WAITS: [(u64, &str); 10] = [
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
pub fn all(results: &Results, policy: &str) -> Vec<(&'static str, String)> {
    let series = &results.series;
    let users = Owners {
        title: "user",
        names: &series.user_names,
        nameless: "(no user)",
        held: |bucket| &bucket.held,
    };
    let queues = Owners {
        title: "queue",
        names: &series.queue_names,
        nameless: "",
        held: |bucket| &bucket.by_queue,
    };
    let mut all = vec![
        ("shares.svg", shares(series, policy, &users)),
        ("utilisation.svg", utilisation(series, policy)),
        ("waits.svg", waits(results, policy)),
    ];
    if !series.queue_names.is_empty() {
        all.push(("queues.svg", shares(series, policy, &queues)));
    }
    all
}

/// Returns a unit in which the window has a readable length, and its milliseconds.
fn unit(span_ms: u64) -> (&'static str, f64) {
    match span_ms {
        0..600_000 => ("seconds", 1_000.0),
        600_000..36_000_000 => ("minutes", 60_000.0),
        36_000_000..864_000_000 => ("hours", 3_600_000.0),
        _ => ("days", 86_400_000.0),
    }
}

fn time_axis(series: &Series) -> (Axis, f64) {
    let span = series.last - series.first;
    let (name, ms) = unit(span);
    let axis = Axis::linear(
        format!("{name} since the first submission"),
        real(span.into()) / ms,
    );
    (axis, real(span.into()) / ms)
}

/// Returns the middle of each bucket that has samples, and the bucket.
fn places(series: &Series, length: f64) -> Vec<(f64, &Bucket)> {
    let count = real(series.buckets.len() as u128);
    let seen = series
        .buckets
        .iter()
        .enumerate()
        .filter(|(_, bucket)| bucket.samples > 0);
    seen.map(|(at, bucket)| ((real(at as u128) + 0.5) / count * length, bucket))
        .collect()
}

/// Converts millionths summed over samples to percent.
fn percent(sum: u64, samples: u64) -> f64 {
    real(sum.into()) / real(samples.into()) / 10_000.0
}

/// The users or queues of a chart of shares.
struct Owners<'a> {
    title: &'a str,
    names: &'a [String],
    nameless: &'a str,
    held: fn(&Bucket) -> &BTreeMap<usize, u64>,
}

fn shares(series: &Series, policy: &str, owners: &Owners) -> String {
    let mut totals: BTreeMap<usize, u64> = BTreeMap::new();
    for bucket in &series.buckets {
        for (owner, held) in (owners.held)(bucket) {
            *totals.entry(*owner).or_default() += held;
        }
    }
    let mut order: Vec<(usize, u64)> = totals.into_iter().collect();
    order.sort_by_key(|(owner, held)| (std::cmp::Reverse(*held), *owner));
    let drawn: Vec<usize> = order.iter().take(DRAWN).map(|(owner, _)| *owner).collect();
    let (axis, length) = time_axis(series);
    let title = format!("Dominant shares per {}, {policy}", owners.title);
    let mut chart = Chart::new(title, axis, Axis::linear("percent of the cluster", 100.0));
    let places = places(series, length);
    let mut floor = vec![0.0; places.len()];
    let mut band = |chart: &mut Chart, name: &str, colour, held: &dyn Fn(&Bucket) -> u64| {
        let pieces = places.iter().zip(&mut floor).map(|((x, bucket), floor)| {
            let low = *floor;
            *floor += percent(held(bucket), bucket.samples);
            (*x, low, *floor)
        });
        let pieces: Vec<(f64, f64, f64)> = pieces.collect();
        chart.area(name, &pieces, colour);
    };
    for (owner, colour) in drawn.iter().zip(COLOURS) {
        let name = match owners.names[*owner].as_str() {
            "" => owners.nameless,
            name => name,
        };
        let held = |bucket: &Bucket| (owners.held)(bucket).get(owner).copied().unwrap_or(0);
        band(&mut chart, name, colour, &held);
    }
    if order.len() > DRAWN {
        let name = format!("{} others", order.len() - DRAWN);
        let held = |bucket: &Bucket| {
            let all = (owners.held)(bucket).iter();
            let rest = all.filter(|(owner, _)| !drawn.contains(owner));
            rest.map(|(_, held)| held).sum()
        };
        band(&mut chart, &name, COLOURS[DRAWN], &held);
    }
    chart.svg()
}

fn utilisation(series: &Series, policy: &str) -> String {
    let (axis, length) = time_axis(series);
    let title = format!("Cpu in use, {policy}");
    let mut chart = Chart::new(title, axis, Axis::linear("percent of all cpu", 100.0));
    let used: Vec<(f64, f64)> = places(series, length)
        .into_iter()
        .map(|(x, bucket)| (x, percent(bucket.cpu_used, bucket.samples)))
        .collect();
    chart.line("in use", &used, COLOURS[0]);
    if !used.is_empty() {
        let mean = used.iter().map(|(_, y)| y).sum::<f64>() / real(used.len() as u128);
        chart.line("mean", &[(0.0, mean), (length, mean)], COLOURS[3]);
    }
    chart.svg()
}

/// Draws the fraction of jobs that waited at most this long, on a logarithmic scale.
fn waits(results: &Results, policy: &str) -> String {
    let done = results
        .outcomes
        .iter()
        .filter(|outcome| outcome.ended.is_some());
    let mut waits: Vec<u64> = done.map(wait_ms).collect();
    waits.sort_unstable();
    let place = |ms: u64| (1.0 + real(ms.into()) / 1000.0).log10();
    let longest = waits.last().copied().unwrap_or(0).max(10_000);
    let marks = WAITS
        .iter()
        .filter(|(seconds, _)| seconds * 1000 <= longest);
    let axis = Axis {
        label: "wait until the first start (logarithmic)".into(),
        max: place(longest),
        marks: std::iter::once((0.0, "0".to_owned()))
            .chain(marks.map(|(seconds, text)| (place(seconds * 1000), (*text).to_owned())))
            .collect(),
    };
    let title = format!("Wait distribution, {policy}");
    let mut chart = Chart::new(title, axis, Axis::linear("percent of the jobs", 100.0));
    let count = real(waits.len().max(1) as u128);
    let mut points = Vec::new();
    // Steps finer than a quarter of a percent are not visible.
    let every = (waits.len() / 400).max(1);
    for (at, wait) in waits.iter().enumerate() {
        if at % every == 0 || at + 1 == waits.len() {
            points.push((place(*wait), 100.0 * real(at as u128 + 1) / count));
        }
    }
    chart.line("waited at most", &points, COLOURS[0]);
    chart.svg()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_of_time_fits_the_window() {
        assert_eq!(unit(5_000).0, "seconds");
        assert_eq!(unit(89 * 86_400_000).0, "days");
    }
}
