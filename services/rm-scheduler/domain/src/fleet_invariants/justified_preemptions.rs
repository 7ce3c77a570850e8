//! Invariant: preemption is justified. The work that it was for (the beneficiary) starts, and two
//! pieces of work do not preempt each other in alternation (I14).
//!
//! The check reads receipts, the records of preemptions. Without external events, preemptions must
//! also stop. Property tests of the planner cover that.

use std::collections::BTreeMap;

use hayward_vocabulary::invariant_finding::{Evidence, Finding, Inquiry, Rule};
use hayward_vocabulary::{Outcome, Receipt, Timestamp, WorkId};

pub const JUSTIFIED: Rule = Rule {
    id: "I14",
    title: "a preemption serves other work, and two pieces of work do not alternate",
};
/// Age in milliseconds from which receipts are ignored.
const RECENT_MS: u64 = 3_600_000;
/// Age in milliseconds at which a receipt without a result is a violation.
const MAX_OPEN_MS: u64 = 1_800_000;
/// Minimum number of receipts with a result for a verdict on their majority.
const MIN_RESULTS: u64 = 10;
/// Maximum number of turns in which two pieces of work preempt each other.
const MAX_ALTERNATIONS: u64 = 3;

/// Last beneficiary, and number of turns, for each pair of pieces of work.
type Alternations<'a> = BTreeMap<(&'a WorkId, &'a WorkId), (&'a WorkId, u64)>;

/// Checks the stored receipts, oldest first.
///
/// It is no violation if the beneficiary was withdrawn, because that is an external event. Space on
/// an unreachable node may also stay unused while its owner awaits the process there (W7).
pub fn check_preemptions<'a>(
    receipts: impl Iterator<Item = &'a Receipt>,
    is_wanted: impl Fn(&WorkId) -> bool,
    is_awaited: impl Fn(&Receipt) -> bool,
    now: Timestamp,
) -> Finding {
    let mut inquiry = Inquiry::new(JUSTIFIED);
    let (mut ended, mut without_benefit) = (0_u64, 0_u64);
    let mut alternations = Alternations::new();
    for receipt in receipts.filter(|receipt| now.ms_since(receipt.at) < RECENT_MS) {
        let age = now.ms_since(receipt.at);
        let is_overdue =
            receipt.outcome == Outcome::Open && age >= MAX_OPEN_MS && !is_awaited(receipt);
        inquiry.examine(is_overdue.then(|| {
            let detail = format!(
                "{} lost it on {}, and no work has used the space or given it up",
                receipt.work, receipt.node
            );
            Evidence::new(&receipt.allocation, detail)
                .with_number("round", receipt.round)
                .with_number("open_ms", age)
        }));
        let Some(beneficiary) = receipt.beneficiary.as_ref() else {
            continue;
        };
        match &receipt.outcome {
            Outcome::NotStarted { .. } if is_wanted(beneficiary) => {
                (ended, without_benefit) = (ended + 1, without_benefit + 1);
            }
            Outcome::Started { .. } | Outcome::StartedElsewhere { .. } => ended += 1,
            _ => {}
        }
        let pair = (
            beneficiary.min(&receipt.work),
            beneficiary.max(&receipt.work),
        );
        let (last, count) = alternations.entry(pair).or_insert((beneficiary, 1));
        if *last != beneficiary {
            (*last, *count) = (beneficiary, *count + 1);
        }
    }
    for ((one, other), (_, count)) in alternations {
        if count > MAX_ALTERNATIONS && is_wanted(one) && is_wanted(other) {
            let detail = format!("takes room from {other}, and {other} from it, in turn");
            inquiry.add_violation(Evidence::new(one, detail).with_number("turns", count));
        }
    }
    if ended >= MIN_RESULTS && without_benefit * 2 > ended {
        let detail = format!(
            "of {ended} preemptions with a result in the hour, {without_benefit} served no work"
        );
        let evidence = Evidence::new("preemptions", detail);
        inquiry.add_violation(
            evidence
                .with_number("ended", ended)
                .with_number("in_vain", without_benefit),
        );
    }
    inquiry.finish()
}
