//! Compares what a job used with what it requested (TC-165).

use hayward_job_converter_api::WorkView;
use hayward_job_converter_api::usage::UsageSummary;
use hayward_vocabulary::resources::GIB;

use crate::output::Facts;
use crate::output::format::{format_bytes, format_count, format_duration, format_thousandths};

const MIB: u64 = 1 << 20;
/// Advice leaves at least this part of the largest peak free.
const MARGIN_PERCENT: u64 = 25;
/// Smallest amount of memory that is advised.
const MIN_ADVISED: u64 = 16 * MIB;

/// Adds lines about cpu, memory and run time, and an advice if it is safe.
pub fn add_facts(view: &WorkView, facts: &mut Facts) {
    let Some(usage) = &view.usage else {
        return;
    };
    facts.add("cpu", cpu_text(usage));
    facts.add("memory", memory_text(usage));
    let run = usage.run_us;
    let [median, p95, max] = [run.median, run.p95, run.max].map(|us| format_duration(us / 1000));
    facts.add(
        "run time",
        format!("{median} median, {p95} for 95 %, {max} at most"),
    );
    if let Some(advice) = advice(view, usage) {
        facts.add("advice", advice);
    }
}

fn cpu_text(usage: &UsageSummary) -> String {
    let (cpu_us, wall_us) = (usage.cpu_us, usage.wall_us.max(1));
    let used = format!(
        "{} in {}",
        format_duration(cpu_us / 1000),
        format_duration(wall_us / 1000)
    );
    match usage.requested_cpu_milli {
        0 => format!("{used}; none was requested"),
        requested => {
            let granted = u128::from(wall_us) * u128::from(requested) / 1000;
            let percent = u128::from(cpu_us) * 100 / granted.max(1);
            let requested = format_thousandths(requested);
            format!("{percent} % of {requested} requested ({used})")
        }
    }
}

fn memory_text(usage: &UsageSummary) -> String {
    let memory = usage.memory_bytes;
    format!(
        "{} median, {} at most, of {} requested",
        format_bytes(memory.median),
        format_bytes(memory.max),
        format_bytes(usage.requested_memory_bytes)
    )
}

/// Returns an advice for the next submission. It needs a job that has ended without failures.
fn advice(view: &WorkView, usage: &UsageSummary) -> Option<String> {
    let tasks = view.tasks?;
    let all_succeeded = view.state.is_final() && tasks.succeeded == tasks.total;
    let needed = usage.memory_bytes.max.saturating_mul(100 + MARGIN_PERCENT) / 100;
    let advised = round_up(needed);
    let saves_half = advised <= usage.requested_memory_bytes / 2;
    (all_succeeded && usage.runs >= tasks.total && saves_half).then(|| {
        let runs = format_count(tasks.total, "task");
        format!(
            "--memory {} would have been enough for {runs}",
            flag_text(advised)
        )
    })
}

/// Rounds up to a power of two, or to three halves of one.
fn round_up(bytes: u64) -> u64 {
    let power = bytes.max(MIN_ADVISED).next_power_of_two();
    let three_quarters = power / 4 * 3;
    if bytes <= three_quarters {
        three_quarters.max(MIN_ADVISED)
    } else {
        power
    }
}

/// Writes an amount as a value of `--memory`.
fn flag_text(bytes: u64) -> String {
    if bytes.is_multiple_of(GIB) {
        format!("{}G", bytes / GIB)
    } else {
        format!("{}M", bytes.div_ceil(MIB))
    }
}

#[cfg(test)]
mod tests {
    use hayward_job_converter_api::usage::AmountSummary;

    use super::*;

    fn usage(peak: u64, requested_cpu_milli: u64) -> UsageSummary {
        let amounts = |max| AmountSummary {
            median: max / 2,
            p95: max,
            max,
        };
        UsageSummary {
            runs: 100,
            cpu_us: 38_000_000,
            wall_us: 100_000_000,
            memory_bytes: amounts(peak),
            run_us: amounts(2_000_000),
            requested_cpu_milli,
            requested_memory_bytes: GIB,
        }
    }

    #[test]
    fn cpu_and_memory_are_compared_with_the_request() {
        let usage_of_job = usage(60 * MIB, 1000);
        assert_eq!(
            cpu_text(&usage_of_job),
            "38 % of 1 requested (38s in 1m 40s)"
        );
        assert_eq!(
            memory_text(&usage_of_job),
            "30 MiB median, 60 MiB at most, of 1 GiB requested"
        );
        assert_eq!(
            cpu_text(&usage(60 * MIB, 0)),
            "38s in 1m 40s; none was requested"
        );
    }

    #[test]
    fn advised_memory_has_a_margin_and_a_round_value() {
        for (peak, expected) in [
            (60 * MIB, "96M"),
            (100 * MIB, "128M"),
            (1, "16M"),
            (300 * MIB, "384M"),
            (1500 * MIB, "2G"),
        ] {
            let advised = round_up(peak * (100 + MARGIN_PERCENT) / 100);
            assert_eq!(flag_text(advised), expected);
            assert!(advised >= peak);
        }
    }
}
