//! Verdict of a waiting gang: how many processes fit, what blocks the rest, and its reservation.

use hayward_rm_scheduler_domain::{Reason, plan::Unblock, snapshot::queues::GangReservation};

use super::{Answer, Explainer};
use crate::{
    impossible::impossible_gang,
    reserve::gangs,
    round_state::{RoundState, Why},
};

impl Explainer<'_, '_> {
    pub(super) fn gang(
        &mut self,
        item: usize,
        fit: u64,
        needed: u64,
        because: Option<&Why>,
    ) -> Answer {
        let round = self.round;
        if let Some(impossible) = impossible_gang(round, item) {
            let detail = format!(
                "its gang starts as a whole or not at all: {}",
                impossible.detail
            );
            return Answer {
                quota: impossible.quota,
                ..Answer::new(Reason::GangIncomplete, detail)
            };
        }
        let mut detail = format!(
            "its gang starts as a whole or not at all, and {fit} of the {needed} processes it \
             lacks fit"
        );
        // If each process fits alone, the nodes are not the reason.
        let because = because.filter(|why| **why != Why::NoNode || !self.has_free_space(item));
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
            Some(reservation) => reserved(round, reservation, &mut answer),
            None => answer.detail.push_str(&missing_reservation(round, item)),
        }
        answer
    }

    /// Returns true if a node has free space, reserved or not. The result is cached per size.
    fn has_free_space(&mut self, item: usize) -> bool {
        let round = self.round;
        let it = &round.items[item];
        let search = || {
            let mut node_states = round.nodes.node_states.iter().enumerate();
            node_states.any(|(node, node_state)| {
                node_state.node.is_schedulable()
                    && node_state.has_free_space(round.vector(item))
                    && round.suits(item, node)
            })
        };
        if it.anywhere {
            *self.free_space.entry(it.shape).or_insert_with(search)
        } else {
            search()
        }
    }
}

fn reserved(round: &RoundState, reservation: &GangReservation, answer: &mut Answer) {
    const NAMED: usize = 3;
    let until = gangs::until(round, reservation);
    let count = reservation.nodes.len();
    let names = reservation
        .nodes
        .keys()
        .take(NAMED)
        .map(ToString::to_string);
    let mut names: Vec<String> = names.collect();
    if count > NAMED {
        names.push(format!("{} more", count - NAMED));
    }
    let nodes = names.join(", ");
    let on_them = |held: &&crate::round_state::HeldAllocation| {
        let name = &held.allocation.node;
        held.leaves && reservation.nodes.contains_key(name)
    };
    let leaving = round.held.iter().filter(on_them).count() as u64;
    // No action is needed.
    answer.unblock = Some(Unblock::Wait {
        leaving_processes: leaving,
    });
    if reservation.cleared {
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

/// Returns the reason for a missing reservation.
fn missing_reservation(round: &RoundState, item: usize) -> String {
    if gangs::has_lapsed(round, item) {
        return "; its last reservation lapsed, and it gets no new one for a while".to_owned();
    }
    if round.carried.gang_waits.is_some() {
        return "; no other nodes are reserved until a gang has its space".to_owned();
    }
    let other = round.carried.gang.as_ref();
    other.map_or_else(String::new, |reservation| {
        let until = gangs::until(round, reservation);
        let gang = &reservation.work;
        format!(
            "; until {until} space is reserved for the gang of work {gang}, one after the other"
        )
    })
}
