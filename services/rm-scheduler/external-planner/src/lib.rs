//! The `http` planner (D7), as far as it decides anything: pools whose room is given out by a
//! program outside. [`Ask`] is what that program is asked, [`read`] reads its answer, and [`plan`]
//! turns an answer into grants and orders to leave.
//!
//! Nothing here talks. An answer is part of the snapshot, so the same snapshot gives the same plan,
//! and a round can be replayed without the program. It is distrusted: each of its steps is looked
//! at on its own against the newest snapshot, what is wrong is refused with a reason from a closed
//! list, and what is left has passed `check` beside everything else that is planned.
//!
//! What has to leave whatever anybody wants (withdrawn work, lost nodes, evacuations) leaves by the
//! everyday rules, whether the program is there or not. Without an answer nothing new is granted.

mod budget;
mod forced_vacates;
mod pool_view;
mod recent_moves;
mod request;
mod response;
mod steps;
mod trees;
mod verdicts;

use hayward_rm_scheduler_domain::{Plan, Snapshot, plan::outside::Taken};

pub use request::{Ask, AskedAllocation, AskedClass, AskedNode, AskedWork, lacks, of_use};
pub use response::{FORMAT, MOST_BYTES, MOST_STEPS, Unreadable, clipped, read};
pub use trees::Trees;

use pool_view::Book;

/// Adds what is planned for pools with a planner outside to what the others have planned.
pub fn plan(snapshot: &Snapshot, plan: &mut Plan) {
    if snapshot.outside.is_empty() {
        return;
    }
    let trees = Trees::of(snapshot);
    for (top, known) in &snapshot.outside {
        // 1. Who wants what, and what is held.
        let mut book = Book::open(snapshot, &trees, top);
        // 2. What leaves whatever anybody wants.
        let leaves = forced_vacates::forced(&book);
        book.leave(&leaves);
        // 3. What is taken of an answer that no round has used yet.
        let used = snapshot.carried.outside.get(top).copied();
        let fresh = known.answer.as_ref();
        let fresh = fresh.filter(|it| used.is_none_or(|used| it.number > used));
        let taken: Option<Taken> = steps::take(&mut book, (leaves, fresh), plan);
        // 4. Why each piece of work has what it has.
        let heard = taken.as_ref().map(|it| &it.heard);
        let heard = heard.or(known.heard.as_ref());
        plan.verdicts
            .extend(verdicts::all(&book, (known.silence.as_deref(), heard)));
        // An answer is used once, also where nothing of it could be taken.
        let used = taken.as_ref().map(|it| it.number).or(used);
        if let Some(used) = used {
            plan.carried.outside.insert(top.clone(), used);
        }
        if !book.moved.is_empty() {
            plan.carried.moved.insert(top.clone(), book.moved);
        }
        if let Some(taken) = taken {
            plan.outside.insert(top.clone(), taken);
        }
    }
    plan.vacates.sort_by(|a, b| a.allocation.cmp(&b.allocation));
}

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod scenarios;
