//! The steps of an answer, one by one, against the newest snapshot. What is wrong with one is said
//! of it alone; the others are taken.
//!
//! What the steps look at themselves is what only they know: whose work it is, what it wants, whose
//! room serves whom. All rules of nodes, classes and users are `check`'s, which looks at what is
//! left beside everything else that is planned, and refuses the rest by its own words.

mod beneficiaries;
mod check_rest;
mod grants;
mod vacates;

use std::collections::{BTreeMap, BTreeSet};

use hayward_rm_scheduler_domain::{
    Plan,
    plan::{
        Grant, Receipt, Vacate,
        outside::{Refusal, Refused, Taken},
    },
    snapshot::outside::{Answer, Heard},
};
use hayward_vocabulary::WorkId;

use crate::{pool_view::Book, recent_moves, response::clipped};

/// Refusals of one answer that are told; all are counted.
const TOLD: usize = 100;
/// Characters of a name that is told.
const NAME: usize = 100;

/// What an answer comes to, and what is wrong with it.
#[derive(Default)]
pub(super) struct Steps {
    /// With the place of the step in the answer.
    grants: Vec<(usize, Grant)>,
    vacates: Vec<(usize, Vacate, Receipt)>,
    /// For whom, once for each process.
    served: Vec<WorkId>,
    refused: Vec<Refused>,
    refusals: u64,
    /// The first refusal of each piece of work.
    of_work: BTreeMap<WorkId, String>,
}

/// A step, as it is told.
struct Step<'a> {
    at: String,
    what: &'a str,
    node: Option<&'a str>,
}

impl Steps {
    fn refuse(&mut self, step: &Step, (reason, detail): (Refusal, String)) {
        self.refusals += 1;
        if self.refused.len() < TOLD {
            self.refused.push(Refused {
                at: step.at.clone(),
                what: clipped(step.what, NAME),
                node: step.node.map(|node| clipped(node, NAME)),
                reason,
                detail,
            });
        }
    }

    fn refuse_for(&mut self, work: &WorkId, step: &Step, why: (Refusal, String)) {
        if !self.of_work.contains_key(work) {
            self.of_work.insert(work.clone(), why.1.clone());
        }
        self.refuse(step, why);
    }
}

/// Adds what leaves anyway, and what is taken of a fresh answer, to the plan.
pub(crate) fn take(
    book: &mut Book,
    (forced, fresh): (Vec<Vacate>, Option<&Answer>),
    plan: &mut Plan,
) -> Option<Taken> {
    let mut steps = Steps::default();
    if let Some(answer) = fresh {
        // Who is granted what it lacks is no reason to take anything back.
        grants::look_at(book, (answer, plan), &mut steps);
        vacates::look_at(book, (answer, &forced, plan), &mut steps);
    }
    check_rest::into_plan(book, forced, &mut steps, plan);
    let answer = fresh?;
    note_moves(book, &steps);
    let notes = book.work.iter().filter_map(|(work, wish)| {
        let note = answer.notes.get(work.as_str());
        let note = note.filter(|_| wish.missing() > 0)?;
        Some(((*work).clone(), note.clone()))
    });
    let notes = notes.collect();
    let lacks = |work: &WorkId| book.work.get(work).is_some_and(|it| it.missing() > 0);
    steps.of_work.retain(|work, _| lacks(work));
    Some(Taken {
        number: answer.number,
        granted: steps.grants.len() as u64,
        vacated: steps.vacates.len() as u64,
        refused: steps.refused,
        refusals: steps.refusals,
        heard: Heard {
            notes,
            refused: steps.of_work,
        },
    })
}

/// What is left of the answer after all is what the next ones have to mind.
fn note_moves(book: &mut Book, steps: &Steps) {
    let now = book.snapshot.now;
    for (_, grant) in &steps.grants {
        recent_moves::note_grant(&mut book.moved, grant);
    }
    let receipts = steps.vacates.iter().map(|(_, _, receipt)| receipt);
    let mut people = BTreeSet::new();
    for receipt in receipts {
        recent_moves::note_order(&mut book.moved, receipt, now);
        people.extend(&receipt.beneficiary);
    }
    for work in steps.served.iter().filter(|work| people.contains(*work)) {
        recent_moves::note_served(&mut book.moved, work, now);
    }
}
