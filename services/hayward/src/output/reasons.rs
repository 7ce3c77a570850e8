//! Describes reasons as text: what would unblock work, and what was preempted for which work.

use std::collections::BTreeMap;

use hayward_vocabulary::launch::ENGINE;
use hayward_vocabulary::{Outcome, Receipt, Unblock, WorkId};

use super::format::{format_bytes, format_count, format_duration, sanitize};

fn format_quanta(number: u64) -> String {
    match number {
        1 => "1 quantum".to_owned(),
        number => format!("{number} quanta"),
    }
}

/// Describes the smallest change that would let one more process start, as an instruction.
pub fn describe_unblock(change: &Unblock) -> String {
    match change {
        Unblock::Wait {
            leaving_processes: 0,
        } => "wait: room is kept for it".to_owned(),
        Unblock::Wait {
            leaving_processes: 1,
        } => "wait: a process that is leaving makes room".to_owned(),
        Unblock::Wait { leaving_processes } => {
            format!("wait: {leaving_processes} processes that are leaving make room")
        }
        Unblock::FreeRoom {
            node,
            quanta: missing,
        } => {
            format!("free {} more on {node}", format_quanta(*missing))
        }
        Unblock::RaiseAllotment { bytes: amount } => {
            format!("raise its owner's allotment by {}", format_bytes(*amount))
        }
        Unblock::AskForLess { quanta: limit } => {
            format!("ask for at most {} a process", format_quanta(*limit))
        }
        Unblock::AddNode { quanta: size } => {
            format!("add a node of at least {}", format_quanta(*size))
        }
        Unblock::OfferResource { name } => match name.strip_prefix("mount:") {
            Some(mount) => format!("list {mount} in `mounts` of its pool in the policy"),
            None if name == ENGINE => "add a node whose agent has a container engine".to_owned(),
            None => format!("add a node that offers {name}"),
        },
        Unblock::OpenNode { node } => {
            format!("let {node} take work again: unblock it, vary it on, or bring it back")
        }
        Unblock::ListNode { node } => format!("put {node} into its list of machines"),
        Unblock::RaiseShare { quanta: amount } => {
            format!("give its class {} more", format_quanta(*amount))
        }
        Unblock::RaisePreemptionBudget { user, percent } => {
            let scope = if *user { "user" } else { "pool" };
            format!("wait, or set `preemption_{scope}_percent_per_hour` of the policy to {percent}")
        }
        Unblock::NameClass => "name a class that may serve it".to_owned(),
        Unblock::Unknown => "something this version of the command has no words for".to_owned(),
    }
}

/// Groups receipts by round, victim and beneficiary.
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
pub fn preemptions_of_work(receipts: &[Receipt], work: &WorkId) -> Vec<String> {
    let sentence = |group: Vec<&Receipt>| {
        let first = group.first()?;
        let (processes, lost) = (process_text(&group), lost_text(&group));
        let text = if first.work == *work {
            let beneficiary_text = beneficiary_text(first);
            format!(
                "lost {processes} in round {}{beneficiary_text}, {lost} of work",
                first.round
            )
        } else {
            format!(
                "{processes} of {} of {} had to leave for it in round {}, {lost} of work",
                first.work, first.user, first.round
            )
        };
        Some(format!("{text}{}", outcome_text(&group)))
    };
    let mut all: Vec<String> = group_receipts(receipts)
        .into_iter()
        .filter_map(sentence)
        .collect();
    // The list contains whole rounds. Only a round that alone exceeds the limit is cut.
    if let (Receipt::MAX_SHOWN, Some(last)) = (receipts.len(), receipts.last())
        && receipts.iter().all(|receipt| receipt.round == last.round)
    {
        let round = last.round;
        all.push(format!(
            "`hayward rounds {round}` says whether there were more"
        ));
    }
    all
}

/// Describes the preemptions of one round.
pub fn preemptions_in_round(receipts: &[Receipt]) -> Vec<String> {
    let sentence = |group: Vec<&Receipt>| {
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
        .filter_map(sentence)
        .collect()
}

fn process_text(group: &[&Receipt]) -> String {
    match group.len() {
        1 => "1 process".to_owned(),
        number => format!("{number} processes"),
    }
}

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

/// Describes the result for the beneficiary. The text is empty if no work waits for it.
fn outcome_text(group: &[&Receipt]) -> String {
    let several = group.len() > 1;
    let delays_ms: Vec<u64> = group
        .iter()
        .filter_map(|receipt| match receipt.outcome {
            Outcome::Started { after_ms, .. } => Some(after_ms),
            _ => None,
        })
        .collect();
    let first = delays_ms.iter().min().map(|first| format_duration(*first));
    let started_text = first.map(|first| match (several, delays_ms.len()) {
        (false, _) => format!("; it started {first} later"),
        (true, started_count) => {
            format!("; it started in {started_count} of them, first {first} later")
        }
    });
    let open_count = group
        .iter()
        .filter(|receipt| receipt.outcome == Outcome::Open)
        .count();
    let open_text = match (open_count, several) {
        (0, _) => None,
        (_, false) => Some("; it has not started yet".to_owned()),
        (open_count, true) => Some(format!(
            "; {} not taken yet",
            format_count(open_count as u64, "place")
        )),
    };
    let other_end = group.iter().find_map(|receipt| match &receipt.outcome {
        Outcome::NotStarted { detail, .. } => Some(format!("; it did not start: {detail}")),
        Outcome::StartedElsewhere { node, .. } => Some(format!("; it started on {node} instead")),
        _ => None,
    });
    sanitize(
        &started_text
            .into_iter()
            .chain(open_text)
            .chain(other_end)
            .collect::<String>(),
    )
}

#[cfg(test)]
mod tests {
    use hayward_vocabulary::{AllocationId, NodeName, Timestamp, UserName};

    use super::*;

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
        let texts = |work: &str| preemptions_of_work(&receipts, &WorkId::new(work).unwrap());
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
        let lines = preemptions_of_work(&receipts, &WorkId::new("job_a").unwrap());
        assert!(
            lines[0].starts_with("lost 16 processes in round 17"),
            "{lines:?}"
        );
        assert_eq!(lines[1], "`hayward rounds 17` says whether there were more");
    }

    #[test]
    fn the_reason_is_named_when_a_beneficiary_did_not_start() {
        let lapsed = Outcome::NotStarted {
            at: Timestamp::from_unix_ms(2),
            detail: "job_b ended\u{1b} first".to_owned(),
        };
        let lines = preemptions_in_round(&[
            receipt("job_a", 1, lapsed),
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

    #[test]
    fn every_unblock_is_an_instruction() {
        assert_eq!(
            describe_unblock(&Unblock::RaiseAllotment { bytes: 3 << 29 }),
            "raise its owner's allotment by 1.5 GiB"
        );
        let node = NodeName::new("n1").unwrap();
        assert_eq!(
            describe_unblock(&Unblock::FreeRoom { node, quanta: 1 }),
            "free 1 quantum more on n1"
        );
    }
}
