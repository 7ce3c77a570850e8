//! The same division among entities that weigh the same, stand even, and each want one order: the
//! work of one user. Many of them want the same, so they come in bands: entities who want as many
//! processes of one order and so far were given as many. A band is looked at once, and divided
//! where a turn decides: who is handed what rounding left, who is the last that finds room.
//! [`Claims`](super::Claims) says what has to come of it.

use std::cmp::Reverse;

use crate::orders::Holes;

/// Entities alike, by their turns, which ascend and are nobody else's.
#[derive(Clone)]
pub(crate) struct Band<'t> {
    /// Says whose band it is to who asks.
    pub owner: usize,
    /// The place of its first in what the owner has.
    pub from: usize,
    pub turns: &'t [u32],
    pub order: u64,
    /// Still, by each.
    pub want: u64,
    pub given: u64,
    takes_part: bool,
    /// Quanta, in one pass.
    deserved: u64,
    got: u64,
    /// Quanta that rounding left and that each was handed, over all passes.
    extras: u64,
    /// Processes each is to get next.
    next: u64,
    /// Is to be handed a quantum.
    is_chosen: bool,
}

impl<'t> Band<'t> {
    pub fn new(owner: usize, (from, turns): (usize, &'t [u32]), order: u64, want: u64) -> Self {
        Self {
            owner,
            from,
            turns,
            order,
            want,
            given: 0,
            // Everyone is in the first pass, also who wants nothing.
            takes_part: true,
            deserved: 0,
            got: 0,
            extras: 0,
            next: 0,
            is_chosen: false,
        }
    }

    fn count(&self) -> u64 {
        self.turns.len() as u64
    }

    /// How many have their turn before this one.
    fn before(&self, turn: u32) -> usize {
        self.turns.partition_point(|other| *other < turn)
    }

    /// Leaves those before this turn and returns the others.
    fn divide(&mut self, turn: u32) -> Option<Self> {
        let place = self.before(turn);
        if place == 0 || place == self.turns.len() {
            return None;
        }
        let mut rest = self.clone();
        (self.turns, rest.turns) = self.turns.split_at(place);
        rest.from += place;
        Some(rest)
    }

    fn give(&mut self, count: u64) {
        (self.given, self.want) = (self.given + count, self.want - count);
    }
}

/// The bands of one order.
struct Lane<'t> {
    order: u64,
    bands: Vec<Band<'t>>,
}

/// Divides holes among these. `level` is that of [`Manner`](super::Manner).
pub(crate) fn divide<'t>(
    bands: impl Iterator<Item = Band<'t>>,
    mut holes: Holes,
    level: bool,
) -> impl Iterator<Item = Band<'t>> {
    let mut lanes = enter(bands);
    while each(&lanes).any(|band| band.takes_part) && holes.quanta() > 0 {
        if !pass(&mut lanes, &mut holes, level) {
            break;
        }
        let largest = holes.largest();
        for band in each_mut(&mut lanes) {
            band.takes_part &= band.want > 0 && band.order <= largest;
        }
    }
    for lane in &mut lanes {
        sweep(lane, &mut holes);
    }
    lanes.into_iter().flat_map(|lane| lane.bands)
}

/// The largest order first.
fn enter<'t>(bands: impl Iterator<Item = Band<'t>>) -> Vec<Lane<'t>> {
    let mut bands: Vec<Band> = bands.collect();
    bands.sort_by_key(|band| Reverse(band.order));
    let mut lanes: Vec<Lane> = Vec::new();
    for band in bands {
        match lanes.last_mut().filter(|lane| lane.order == band.order) {
            Some(lane) => lane.bands.push(band),
            None => lanes.push(Lane {
                order: band.order,
                bands: vec![band],
            }),
        }
    }
    lanes
}

fn each<'l, 't>(lanes: &'l [Lane<'t>]) -> impl Iterator<Item = &'l Band<'t>> {
    lanes.iter().flat_map(|lane| &lane.bands)
}

fn each_mut<'l, 't>(lanes: &'l mut [Lane<'t>]) -> impl Iterator<Item = &'l mut Band<'t>> {
    lanes.iter_mut().flat_map(|lane| &mut lane.bands)
}

/// The largest turn before which there is no more than `most` in all, where each entity of a band
/// stands for as much as `weighs` says; and how much there is before it. There is more in all.
fn turn_at<'b, 't: 'b>(
    bands: impl Iterator<Item = &'b Band<'t>>,
    weighs: impl Fn(&Band) -> u64,
    most: u64,
) -> (u32, u64) {
    // What is left of each band between the bounds, and how many of it come before.
    let weighed = bands.map(|band| (band.turns, 0, weighs(band)));
    let mut left: Vec<(&[u32], u64, u64)> = weighed.filter(|(.., weight)| *weight > 0).collect();
    let first = left.iter().map(|(turns, ..)| turns[0]).min();
    let last = left.iter().map(|(turns, ..)| turns[turns.len() - 1]).max();
    let (mut low, mut high) = (first.unwrap_or(0), last.unwrap_or(0));
    let mut places = Vec::with_capacity(left.len());
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        places.clear();
        let mut sum = 0_u128;
        for (turns, before, weight) in &left {
            let place = turns.partition_point(|turn| *turn < middle);
            places.push(place);
            sum += u128::from(before + place as u64) * u128::from(*weight);
        }
        let is_within = sum <= u128::from(most);
        for ((turns, before, _), place) in left.iter_mut().zip(&places) {
            if is_within {
                *before += *place as u64;
                *turns = &turns[*place..];
            } else {
                *turns = &turns[..*place];
            }
        }
        if is_within {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    let before = left.iter().map(|(_, before, weight)| before * weight);
    (low, before.sum())
}

impl Lane<'_> {
    /// Divides the bands that `which` names at a turn.
    fn divide(&mut self, turn: u32, which: impl Fn(&Band) -> bool) {
        for at in 0..self.bands.len() {
            if which(&self.bands[at])
                && let Some(rest) = self.bands[at].divide(turn)
            {
                self.bands.push(rest);
            }
        }
    }
}

/// True when it gave anything.
fn pass(lanes: &mut [Lane], holes: &mut Holes, level: bool) -> bool {
    let mut open = begin(lanes, holes.quanta(), level);
    let (mut first, mut anything) = (true, false);
    for at in 0..lanes.len() {
        let order = lanes[at].order;
        if lanes[at].bands.iter().all(|it| it.want + it.given == 0) {
            continue;
        }
        // Who deserves nothing leaves the divisor before the first order somebody wants.
        if first && holes.largest() > order {
            open -= idle(lanes);
            first = false;
        }
        let fitting = holes.processes(order);
        if fitting == 0 {
            continue;
        }
        if open == 0 {
            break;
        }
        let quota = (fitting * order).div_ceil(open);
        let (taken, closed) = serve(&mut lanes[at], quota, fitting);
        anything |= taken > 0;
        holes.take(taken, order);
        if first {
            open -= idle(lanes);
        }
        first = false;
        open -= closed;
    }
    anything
}

/// Gives the entities of one order their quota, in turn, as far as it fits; returns the processes
/// that were given, and how many got what they deserve.
fn serve(lane: &mut Lane, quota: u64, fitting: u64) -> (u64, u64) {
    let order = lane.order;
    let mut all = 0_u128;
    for band in &mut lane.bands {
        let due = quota.min(band.deserved);
        // Rounding up to one process keeps large work from starving.
        let count = (due / order).max(u64::from(due > 0)).min(band.want);
        band.next = if band.takes_part { count } else { 0 };
        all += u128::from(band.count()) * u128::from(band.next);
    }
    if all > u128::from(fitting) {
        cut(lane, fitting);
    }
    let (mut taken, mut closed) = (0, 0);
    for band in lane.bands.iter_mut().filter(|band| band.takes_part) {
        band.give(band.next);
        band.got = band.next * order;
        taken += band.count() * band.next;
        if band.deserved > 0 && band.got >= band.deserved {
            closed += band.count();
        }
    }
    (taken, closed)
}

/// Where not all fits: the first in turn get all of it, one may get a part, and the others nothing.
fn cut(lane: &mut Lane, fitting: u64) {
    let (turn, before) = turn_at(lane.bands.iter(), |band| band.next, fitting);
    let gets = |band: &Band| band.next > 0;
    lane.divide(turn, gets);
    lane.divide(turn + 1, gets);
    for band in lane.bands.iter_mut().filter(|band| gets(band)) {
        match band.turns[0] {
            first if first < turn => {}
            first if first == turn => band.next = fitting - before,
            _ => band.next = 0,
        }
    }
}

/// Tells each what it deserves; returns how many take part.
fn begin(lanes: &mut [Lane], total: u64, level: bool) -> u64 {
    let taking_part = each(lanes).filter(|band| band.takes_part);
    let open: u64 = taking_part.map(Band::count).sum();
    for band in each_mut(lanes) {
        band.got = 0;
        band.deserved = if band.takes_part { total / open } else { 0 };
    }
    hand_out(lanes, total % open, level);
    open
}

/// What rounding left, a quantum each; who had the fewest of these comes first.
fn hand_out(lanes: &mut [Lane], mut rest: u64, level: bool) {
    let had = |band: &Band| if level { band.extras } else { 0 };
    while rest > 0 {
        let waits = |band: &Band| band.takes_part && !band.is_chosen;
        let Some(least) = each(lanes).filter(|it| waits(it)).map(had).min() else {
            break;
        };
        let is_next = |band: &Band| waits(band) && had(band) == least;
        let here: u64 = each(lanes).filter(|it| is_next(it)).map(Band::count).sum();
        let turn = if here <= rest {
            u32::MAX
        } else {
            let weighs = |band: &Band| u64::from(is_next(band));
            let (turn, _) = turn_at(each(lanes), weighs, rest);
            for lane in lanes.iter_mut() {
                lane.divide(turn, is_next);
            }
            turn
        };
        for band in each_mut(lanes) {
            band.is_chosen |= is_next(band) && band.turns[0] < turn;
        }
        rest = rest.saturating_sub(here);
    }
    for band in each_mut(lanes).filter(|band| band.is_chosen) {
        band.is_chosen = false;
        (band.deserved, band.extras) = (band.deserved + 1, band.extras + 1);
    }
}

/// How many take part and deserve nothing.
fn idle(lanes: &[Lane]) -> u64 {
    let idle = each(lanes).filter(|band| band.takes_part && band.deserved == 0);
    idle.map(Band::count).sum()
}

/// What rounding left over goes one process at a time into holes of exactly its size.
fn sweep(lane: &mut Lane, holes: &mut Holes) {
    loop {
        let wants = |band: &Band| band.want > 0;
        let wanting = lane.bands.iter().filter(|band| wants(band));
        let wanting: u64 = wanting.map(Band::count).sum();
        let there = holes.count(lane.order);
        if wanting == 0 || there == 0 {
            return;
        }
        let turn = if there < wanting {
            let weighs = |band: &Band| u64::from(wants(band));
            let (turn, _) = turn_at(lane.bands.iter(), weighs, there);
            lane.divide(turn, wants);
            turn
        } else {
            u32::MAX
        };
        for band in &mut lane.bands {
            if wants(band) && band.turns[0] < turn {
                band.give(1);
            }
        }
        holes.drop_holes(lane.order, there.min(wanting));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::{
        apportion::{Claims, Manner},
        snapshot::Standing,
    };

    proptest! {
        #[test]
        fn it_divides_as_claims_do(
            wants in prop::collection::vec((1..9_u64, 0..6_u64, 1..4_u32), 1..40),
            sizes in prop::collection::vec((1..20_u64, 1..9_u64), 0..8),
            level in any::<bool>(),
        ) {
            let mut holes = Holes::default();
            for (size, count) in sizes {
                holes.add(size, count);
            }
            let mut claims = Claims::default();
            // By what is wanted: turns, and who has them.
            let mut alike = BTreeMap::<(u64, u64), (Vec<u32>, Vec<usize>)>::new();
            let mut turn = 0;
            for (at, (order, want, gap)) in wants.iter().enumerate() {
                claims.enter(1, Standing::Even);
                claims.want(*order, *want);
                let (turns, work) = alike.entry((*order, *want)).or_default();
                turns.push(turn);
                work.push(at);
                turn += gap;
            }
            claims.apportion(holes.clone(), Manner { level, rivals: false });
            let bands = alike.iter().enumerate().map(|(owner, ((order, want), (turns, _)))| {
                Band::new(owner, (0, turns), *order, *want)
            });
            let who: Vec<&Vec<usize>> = alike.values().map(|(_, who)| who).collect();
            let mut given = vec![u64::MAX; wants.len()];
            for band in divide(bands, holes, level) {
                for at in &who[band.owner][band.from..band.from + band.turns.len()] {
                    given[*at] = band.given;
                }
            }
            prop_assert_eq!(given, claims.processes());
        }
    }
}
