//! I14: what was taken back was taken back for somebody, who came; and nobody takes the same room
//! back and forth.
//!
//! That preemptions stop without outside events cannot be seen from inside a fleet that has them;
//! it is shown of the planner by its property tests. What can be seen is in the receipts.

use std::collections::BTreeMap;

use hayward_vocabulary::invariant::{Evidence, Finding, Inquiry, Rule};
use hayward_vocabulary::{Outcome, Receipt, Timestamp, WorkId};

pub const JUSTIFIED: Rule = Rule {
    id: "I14",
    title: "what is taken back serves somebody, and does not go back and forth",
};
/// Receipts older than this are history.
const LATELY_MS: u64 = 3_600_000;
/// Room that was made and is neither used nor given up after this long.
const OPEN_MS: u64 = 1_800_000;
/// Of so many that came to an end, more than half served nobody.
const MANY: u64 = 10;
/// Two works take from each other so often in turn.
const TURNS: u64 = 3;

/// The receipts that are kept, oldest first. Work that is not wanted any more is an outside event:
/// that it did not start, or asked in turn, is held against nobody. Nor is room on a node that
/// cannot answer, where what is to give it up is waited for (W7).
pub fn preemption_is_justified<'a>(
    receipts: impl Iterator<Item = &'a Receipt>,
    wanted: impl Fn(&WorkId) -> bool,
    awaited: impl Fn(&Receipt) -> bool,
    now: Timestamp,
) -> Finding {
    let mut inquiry = Inquiry::into(JUSTIFIED);
    let (mut ended, mut in_vain) = (0_u64, 0_u64);
    let mut turns: BTreeMap<(&WorkId, &WorkId), (&WorkId, u64)> = BTreeMap::new();
    for receipt in receipts.filter(|it| now.ms_since(it.at) < LATELY_MS) {
        let age = now.ms_since(receipt.at);
        let open = receipt.outcome == Outcome::Open && age >= OPEN_MS && !awaited(receipt);
        inquiry.examine(open.then(|| {
            let detail = format!(
                "{} gave it up on {} and nobody has used the room, nor was it given up",
                receipt.work, receipt.node
            );
            Evidence::new(&receipt.allocation, detail)
                .number("round", receipt.round)
                .number("open_ms", age)
        }));
        let Some(beneficiary) = receipt.beneficiary.as_ref() else {
            continue;
        };
        match &receipt.outcome {
            Outcome::NotStarted { .. } if wanted(beneficiary) => {
                (ended, in_vain) = (ended + 1, in_vain + 1);
            }
            Outcome::Started { .. } | Outcome::StartedElsewhere { .. } => ended += 1,
            _ => {}
        }
        let pair = (
            beneficiary.min(&receipt.work),
            beneficiary.max(&receipt.work),
        );
        let (last, count) = turns.entry(pair).or_insert((beneficiary, 1));
        if *last != beneficiary {
            (*last, *count) = (beneficiary, *count + 1);
        }
    }
    for ((one, other), (_, count)) in turns {
        if count > TURNS && wanted(one) && wanted(other) {
            let detail = format!("takes room from {other}, and {other} from it, in turn");
            inquiry.breach(Evidence::new(one, detail).number("turns", count));
        }
    }
    if ended >= MANY && in_vain * 2 > ended {
        let detail =
            format!("of {ended} that came to an end within the hour, {in_vain} served nobody");
        let evidence = Evidence::new("preemptions", detail);
        inquiry.breach(evidence.number("ended", ended).number("in_vain", in_vain));
    }
    inquiry.end()
}
