//! Describes preemptions from their receipts: what left, for which work, the cost, and the result.

use std::collections::BTreeMap;

use hayward_vocabulary::{Outcome, Receipt, WorkId, plural};

use super::format::{format_count, format_duration, sanitize};

/// Groups receipts by round, victim and beneficiary, the newest round first.
fn group_receipts(receipts: &[Receipt]) -> Vec<Vec<&Receipt>> {
    let mut groups: BTreeMap<_, Vec<&Receipt>> = BTreeMap::new();
    for receipt in receipts {
        let key = (
            std::cmp::Reverse(receipt.round),
            &receipt.work,
            &receipt.beneficiary,
        );
        groups.entry(key).or_default().push(receipt);
    }
    groups.into_values().collect()
}

/// Describes the preemptions of a piece of work, and the preemptions for it, the newest first.
pub fn describe_preemptions_of_work(receipts: &[Receipt], work: &WorkId) -> Vec<String> {
    let describe_group = |group: Vec<&Receipt>| {
        let first = group.first()?;
        let (processes, lost) = (process_text(&group), lost_text(&group));
        // The work is either the victim of the group, or its beneficiary.
        let text = if first.work == *work {
            format!(
                "lost {processes} in round {}{}, {lost} of work",
                first.round,
                beneficiary_text(first)
            )
        } else {
            format!(
                "{processes} of {} of {} had to leave for it in round {}, {lost} of work",
                first.work, first.user, first.round
            )
        };
        Some(format!("{text}{}", outcome_text(&group)))
    };
    let mut sentences: Vec<String> = group_receipts(receipts)
        .into_iter()
        .filter_map(describe_group)
        .collect();
    // A response never contains part of a round, unless one round alone exceeds the limit. A full
    // response with a single round may therefore be incomplete.
    if let (Receipt::MAX_SHOWN, Some(last)) = (receipts.len(), receipts.last())
        && receipts.iter().all(|receipt| receipt.round == last.round)
    {
        let round = last.round;
        sentences.push(format!(
            "`hayward rounds {round}` says whether there were more"
        ));
    }
    sentences
}

/// Describes the preemptions of one round.
pub fn describe_preemptions_in_round(receipts: &[Receipt]) -> Vec<String> {
    let describe_group = |group: Vec<&Receipt>| {
        let first = group.first()?;
        Some(format!(
            "{} of {} lost {}{}, {} of work{}",
            first.work,
            first.user,
            process_text(&group),
            beneficiary_text(first),
            lost_text(&group),
            outcome_text(&group)
        ))
    };
    group_receipts(receipts)
        .into_iter()
        .filter_map(describe_group)
        .collect()
}

fn process_text(group: &[&Receipt]) -> String {
    plural::processes(group.len() as u64)
}

/// Returns the total time of work that the processes lost.
fn lost_text(group: &[&Receipt]) -> String {
    let lost = group.iter().map(|receipt| receipt.lost_ms);
    format_duration(lost.fold(0, u64::saturating_add))
}

fn beneficiary_text(receipt: &Receipt) -> String {
    match (&receipt.beneficiary, &receipt.for_user) {
        (Some(work), Some(user)) => format!(" for {work} of {user}"),
        (Some(work), None) => format!(" for {work}"),
        _ => " because others are due more".to_owned(),
    }
}

/// Describes how many of the preempted places the beneficiary has used, and whether it may still
/// use the others. The text is empty without a beneficiary.
fn outcome_text(group: &[&Receipt]) -> String {
    let has_several = group.len() > 1;
    let delays_ms: Vec<u64> = group
        .iter()
        .filter_map(|receipt| match receipt.outcome {
            Outcome::Started { after_ms, .. } => Some(after_ms),
            _ => None,
        })
        .collect();
    let shortest_delay = delays_ms.iter().min().map(|ms| format_duration(*ms));
    let started_text = shortest_delay.map(|delay| match (has_several, delays_ms.len()) {
        (false, _) => format!("; it started {delay} later"),
        (true, started_count) => {
            format!("; it started in {started_count} of them, first {delay} later")
        }
    });
    let open_count = group
        .iter()
        .filter(|receipt| receipt.outcome == Outcome::Open)
        .count();
    let open_text = match (open_count, has_several) {
        (0, _) => None,
        (_, false) => Some("; it has not started yet".to_owned()),
        (open_count, true) => Some(format!(
            "; {} not taken yet",
            format_count(open_count as u64, "place")
        )),
    };
    let other_outcome_text = group.iter().find_map(|receipt| match &receipt.outcome {
        Outcome::NotStarted { detail, .. } => Some(format!("; it did not start: {detail}")),
        Outcome::StartedElsewhere { node, .. } => Some(format!("; it started on {node} instead")),
        _ => None,
    });
    sanitize(
        &started_text
            .into_iter()
            .chain(open_text)
            .chain(other_outcome_text)
            .collect::<String>(),
    )
}

#[cfg(test)]
mod tests {
    use hayward_vocabulary::{AllocationId, NodeName, Timestamp, UserName};

    use super::*;

    /// Returns the receipt of a process of `victim` that lost 1.6 s of work in round 17.
    fn receipt(victim: &str, number: u32, outcome: Outcome) -> Receipt {
        Receipt {
            round: 17,
            at: Timestamp::from_unix_ms(1),
            allocation: AllocationId::new(format!("alc_{number}")).unwrap(),
            work: WorkId::new(victim).unwrap(),
            user: UserName::new("ann").unwrap(),
            node: NodeName::new("n1").unwrap(),
            order: 1,
            lost_ms: 1_600,
            beneficiary: (outcome != Outcome::NoBeneficiary).then(|| WorkId::new("job_b").unwrap()),
            for_user: (outcome != Outcome::NoBeneficiary).then(|| UserName::new("bob").unwrap()),
            outcome,
        }
    }

    fn started_after(after_ms: u64) -> Outcome {
        Outcome::Started {
            allocation: AllocationId::new("alc_9").unwrap(),
            at: Timestamp::from_unix_ms(2),
            after_ms,
        }
    }

    #[test]
    fn victim_and_beneficiary_read_the_same_numbers() {
        let receipts = [
            receipt("job_a", 1, started_after(400)),
            receipt("job_a", 2, Outcome::Open),
        ];
        let texts =
            |work: &str| describe_preemptions_of_work(&receipts, &WorkId::new(work).unwrap());
        assert_eq!(
            texts("job_a"),
            [
                "lost 2 processes in round 17 for job_b of bob, 3.2s of work; it started in 1 of \
                 them, first 400ms later; 1 place not taken yet"
            ]
        );
        assert_eq!(
            texts("job_b"),
            [
                "2 processes of job_a of ann had to leave for it in round 17, 3.2s of work; it \
                 started in 1 of them, first 400ms later; 1 place not taken yet"
            ]
        );
    }

    #[test]
    fn a_truncated_list_names_the_command_that_shows_all() {
        let receipts = vec![receipt("job_a", 1, Outcome::Open); Receipt::MAX_SHOWN];
        let lines = describe_preemptions_of_work(&receipts, &WorkId::new("job_a").unwrap());
        assert!(
            lines[0].starts_with("lost 16 processes in round 17"),
            "{lines:?}"
        );
        assert_eq!(lines[1], "`hayward rounds 17` says whether there were more");
    }

    #[test]
    fn the_reason_is_named_when_a_beneficiary_did_not_start() {
        let not_started = Outcome::NotStarted {
            at: Timestamp::from_unix_ms(2),
            detail: "job_b ended\u{1b} first".to_owned(),
        };
        let lines = describe_preemptions_in_round(&[
            receipt("job_a", 1, not_started),
            receipt("job_c", 2, Outcome::NoBeneficiary),
            receipt("job_d", 3, started_after(90)),
        ]);
        assert_eq!(
            lines,
            [
                "job_a of ann lost 1 process for job_b of bob, 1.6s of work; it did not start: \
                 job_b ended\u{fffd} first",
                "job_c of ann lost 1 process because others are due more, 1.6s of work",
                "job_d of ann lost 1 process for job_b of bob, 1.6s of work; it started 90ms later",
            ]
        );
    }
}
