//! Why a gang waits: how many of it fit, what keeps the others away, and the room that is kept or
//! made for it.

use hayward_rm_scheduler_domain::{Reason, plan::Unblock, snapshot::queues::GangRoom};

use super::{Answer, Explainer, never};
use crate::{
    reserve::gangs,
    round_state::{Books, Why},
};

impl Explainer<'_, '_> {
    pub(super) fn gang(
        &mut self,
        ask: usize,
        (fit, of): (u64, u64),
        because: Option<&Why>,
    ) -> Answer {
        let books = self.books;
        if let Some(never) = never(books, ask) {
            return never.answer();
        }
        let mut detail = format!(
            "its gang starts as a whole or not at all, and {fit} of the {of} processes it lacks fit"
        );
        // Where each fits alone no node is to blame.
        let because = because.filter(|why| **why != Why::NoNode || !self.has_room(ask));
        let because = because.map(|why| self.waits(ask, why));
        let quota = because.as_ref().and_then(|it| it.quota);
        if let Some(because) = because {
            detail.push_str(": ");
            detail.push_str(&because.detail);
        }
        let mut answer = Answer {
            quota,
            ..Answer::of(Reason::GangIncomplete, detail)
        };
        match gangs::of(books, ask) {
            Some(room) => kept(books, room, &mut answer),
            None => answer.detail.push_str(&not_kept(books, ask)),
        }
        answer
    }

    /// Whatever is kept. Asks alike that may go anywhere find the same.
    fn has_room(&mut self, ask: usize) -> bool {
        let books = self.books;
        let it = &books.asks[ask];
        let look = || {
            let mut stations = books.nodes.stations.iter().enumerate();
            stations.any(|(node, station)| {
                station.node.is_schedulable()
                    && station.has_room(books.vector(ask))
                    && books.suits(ask, node)
            })
        };
        if it.anywhere {
            *self.roomy.entry(it.shape).or_insert_with(look)
        } else {
            look()
        }
    }
}

fn kept(books: &Books, room: &GangRoom, answer: &mut Answer) {
    const NAMED: usize = 3;
    let until = gangs::until(books, room);
    let count = room.nodes.len();
    let names = room.nodes.keys().take(NAMED).map(ToString::to_string);
    let mut names: Vec<String> = names.collect();
    if count > NAMED {
        names.push(format!("{} more", count - NAMED));
    }
    let nodes = names.join(", ");
    let on_them = |held: &&crate::round_state::Held| {
        let name = &held.allocation.node;
        held.leaves && room.nodes.contains_key(name)
    };
    let leaving = books.held.iter().filter(on_them).count() as u64;
    // Nobody has to do anything for it.
    answer.unblock = Some(Unblock::Wait {
        leaving_processes: leaving,
    });
    if room.cleared {
        answer.reason = Reason::WaitingForPreemption;
        let text = format!(
            "; room for all of it is being made on nodes {nodes}, where {leaving} processes \
             leave, and is kept for it until {until}"
        );
        answer.detail.push_str(&text);
        return;
    }
    let text = format!(
        "; room for all of it is kept on nodes {nodes} until {until}, and what runs there goes on"
    );
    answer.detail.push_str(&text);
}

/// Why no room is kept for it, where it waits for that.
fn not_kept(books: &Books, ask: usize) -> String {
    if gangs::has_lapsed(books, ask) {
        return "; room was kept for it in vain, and is not kept again for a while".to_owned();
    }
    if books.kept.gang_waits.is_some() {
        return "; no more nodes are kept for others until there is room for a gang".to_owned();
    }
    let other = books.kept.gang.as_ref();
    other.map_or_else(String::new, |room| {
        let until = gangs::until(books, room);
        let gang = &room.work;
        format!("; until {until} room is kept for the gang of work {gang}, one after the other")
    })
}
