//! Verdict of a waiting gang: how many processes fit, what prevents the remaining ones, and the
//! reservation of the gang.

use hayward_rm_scheduler_domain::{Reason, plan::Unblock, snapshot::queues::GangReservation};

use super::{Explainer, Explanation};
use crate::{
    impossible_gangs::explain_impossible_gang,
    reserve::gangs,
    round_state::{RoundState, WaitReason},
};

impl Explainer<'_, '_> {
    pub(super) fn explain_gang(
        &mut self,
        item: usize,
        fitting: u64,
        needed: u64,
        cause: Option<&WaitReason>,
    ) -> Explanation {
        let round = self.round;
        if let Some(impossible_gang) = explain_impossible_gang(round, item) {
            let detail = format!(
                "its gang starts as a whole or not at all: {}",
                impossible_gang.detail
            );
            return Explanation {
                quota: impossible_gang.quota,
                ..Explanation::new(Reason::GangIncomplete, detail)
            };
        }
        let mut detail = format!(
            "its gang starts as a whole or not at all, and {fitting} of the {needed} processes it \
             lacks fit"
        );
        // If each process fits alone, the nodes are not the reason.
        let cause = cause.filter(|wait_reason| {
            **wait_reason != WaitReason::NoNode || !self.has_free_space(item)
        });
        let cause = cause.map(|wait_reason| self.explain_wait(item, wait_reason));
        let quota = cause.as_ref().and_then(|it| it.quota);
        if let Some(cause) = cause {
            detail.push_str(": ");
            detail.push_str(&cause.detail);
        }
        let mut explanation = Explanation {
            quota,
            ..Explanation::new(Reason::GangIncomplete, detail)
        };
        match gangs::reserved_for(round, item) {
            Some(reservation) => add_reservation(round, reservation, &mut explanation),
            None => explanation
                .detail
                .push_str(&missing_reservation_text(round, item)),
        }
        explanation
    }

    /// Returns true if a node has free space, reserved or not. The result is cached per size.
    fn has_free_space(&mut self, item: usize) -> bool {
        let round = self.round;
        let work_item = &round.items[item];
        let search = || {
            let mut node_states = round.nodes.node_states.iter().enumerate();
            node_states.any(|(node, node_state)| {
                node_state.node.is_schedulable()
                    && node_state.has_free_space(round.vector(item))
                    && round.meets_constraints(item, node)
            })
        };
        if work_item.may_use_any_node {
            *self
                .free_space
                .entry(work_item.shape)
                .or_insert_with(search)
        } else {
            search()
        }
    }
}

fn add_reservation(
    round: &RoundState,
    reservation: &GangReservation,
    explanation: &mut Explanation,
) {
    const MAX_LISTED_NODES: usize = 3;
    let until = gangs::expiry(round, reservation);
    let count = reservation.nodes.len();
    let names = reservation
        .nodes
        .keys()
        .take(MAX_LISTED_NODES)
        .map(ToString::to_string);
    let mut names: Vec<String> = names.collect();
    if count > MAX_LISTED_NODES {
        names.push(format!("{} more", count - MAX_LISTED_NODES));
    }
    let nodes = names.join(", ");
    let is_on_reserved_node = |allocation_state: &&crate::round_state::AllocationState| {
        let name = &allocation_state.allocation.node;
        allocation_state.is_leaving && reservation.nodes.contains_key(name)
    };
    let leaving = round
        .allocation_states
        .iter()
        .filter(is_on_reserved_node)
        .count() as u64;
    // No action is needed.
    explanation.unblock = Some(Unblock::Wait {
        leaving_processes: leaving,
    });
    if reservation.cleared {
        explanation.reason = Reason::WaitingForPreemption;
        let text = format!(
            "; room for all of it is being made on nodes {nodes}, where {leaving} processes \
             leave, and is reserved for it until {until}"
        );
        explanation.detail.push_str(&text);
        return;
    }
    let text = format!(
        "; space for all of it is reserved on nodes {nodes} until {until}, and what runs there \
        goes on"
    );
    explanation.detail.push_str(&text);
}

/// Returns the reason for a missing reservation.
fn missing_reservation_text(round: &RoundState, item: usize) -> String {
    if gangs::has_lapsed(round, item) {
        return "; its last reservation lapsed, and it gets no new one for a while".to_owned();
    }
    if round.carried.gang_waits_since.is_some() {
        return "; no other nodes are reserved until a gang has its space".to_owned();
    }
    let reservation = round.carried.gang.as_ref();
    reservation.map_or_else(String::new, |reservation| {
        let until = gangs::expiry(round, reservation);
        let gang = &reservation.work;
        format!(
            "; until {until} space is reserved for the gang of work {gang}, one after the other"
        )
    })
}
