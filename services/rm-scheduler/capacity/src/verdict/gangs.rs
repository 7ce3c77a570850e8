//! Verdict of a waiting gang: how many processes fit, what blocks the rest, and its reservation.

use hayward_rm_scheduler_domain::{Reason, plan::Unblock, snapshot::queues::GangRoom};

use super::{Answer, Explainer, never};
use crate::{
    reserve::gangs,
    round_state::{RoundState, Why},
};

impl Explainer<'_, '_> {
    pub(super) fn gang(
        &mut self,
        item: usize,
        (fit, of): (u64, u64),
        because: Option<&Why>,
    ) -> Answer {
        let round = self.round;
        if let Some(never) = never(round, item) {
            return never.answer();
        }
        let mut detail = format!(
            "its gang starts as a whole or not at all, and {fit} of the {of} processes it lacks fit"
        );
        // If each process fits alone, the nodes are not the reason.
        let because = because.filter(|why| **why != Why::NoNode || !self.has_room(item));
        let because = because.map(|why| self.waits(item, why));
        let quota = because.as_ref().and_then(|it| it.quota);
        if let Some(because) = because {
            detail.push_str(": ");
            detail.push_str(&because.detail);
        }
        let mut answer = Answer {
            quota,
            ..Answer::new(Reason::GangIncomplete, detail)
        };
        match gangs::reserved_for(round, item) {
            Some(room) => reserved(round, room, &mut answer),
            None => answer.detail.push_str(&not_kept(round, item)),
        }
        answer
    }

    /// Free space regardless of reservations, cached per size.
    fn has_room(&mut self, item: usize) -> bool {
        let round = self.round;
        let it = &round.items[item];
        let look = || {
            let mut node_states = round.nodes.node_states.iter().enumerate();
            node_states.any(|(node, node_state)| {
                node_state.node.is_schedulable()
                    && node_state.has_room(round.vector(item))
                    && round.suits(item, node)
            })
        };
        if it.anywhere {
            *self.roomy.entry(it.shape).or_insert_with(look)
        } else {
            look()
        }
    }
}

fn reserved(round: &RoundState, room: &GangRoom, answer: &mut Answer) {
    const NAMED: usize = 3;
    let until = gangs::until(round, room);
    let count = room.nodes.len();
    let names = room.nodes.keys().take(NAMED).map(ToString::to_string);
    let mut names: Vec<String> = names.collect();
    if count > NAMED {
        names.push(format!("{} more", count - NAMED));
    }
    let nodes = names.join(", ");
    let on_them = |held: &&crate::round_state::HeldAllocation| {
        let name = &held.allocation.node;
        held.leaves && room.nodes.contains_key(name)
    };
    let leaving = round.held.iter().filter(on_them).count() as u64;
    // No action is needed.
    answer.unblock = Some(Unblock::Wait {
        leaving_processes: leaving,
    });
    if room.cleared {
        answer.reason = Reason::WaitingForPreemption;
        let text = format!(
            "; room for all of it is being made on nodes {nodes}, where {leaving} processes \
             leave, and is reserved for it until {until}"
        );
        answer.detail.push_str(&text);
        return;
    }
    let text = format!(
        "; space for all of it is reserved on nodes {nodes} until {until}, and what runs there \
        goes on"
    );
    answer.detail.push_str(&text);
}

/// Reason for a missing reservation.
fn not_kept(round: &RoundState, item: usize) -> String {
    if gangs::has_lapsed(round, item) {
        return "; its last reservation lapsed, and it gets no new one for a while".to_owned();
    }
    if round.carried.gang_waits.is_some() {
        return "; no other nodes are reserved until a gang has its space".to_owned();
    }
    let other = round.carried.gang.as_ref();
    other.map_or_else(String::new, |room| {
        let until = gangs::until(round, room);
        let gang = &room.work;
        format!(
            "; until {until} space is reserved for the gang of work {gang}, one after the other"
        )
    })
}
