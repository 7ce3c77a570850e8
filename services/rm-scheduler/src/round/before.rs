//! Orders to leave that are given before a round is planned, so that the plan grants successors.
//!
//! They concern blocked workers, work on nodes that are blocked for this work alone, drains and
//! graceful evacuations. Disruption limits bound how many processes leave at a time. A process of a
//! service leaves after its successor is reserved ([`super::reserve_successors`]), unless its time
//! is over.
//!
//! The planner itself vacates nodes that are evacuated immediately. This module only counts their
//! evacuation.

use std::collections::BTreeMap;

use hayward_blocklist_api::{BlockAction, BlockEntry, BlockKind, EvacuationPolicy};
use hayward_node_status_api::{DrainOrder, Health};
use hayward_publication::{Batch, Moment};
use hayward_rm_scheduler_api::VacateReason;
use hayward_rm_scheduler_api::evidence::BlockerReason;
use hayward_rm_scheduler_domain::disruption::{Candidate, may_leave};
use hayward_rm_scheduler_domain::evacuation::{Way, way};
use hayward_vocabulary::{AllocationId, NodeName, Timestamp, WorkId, WorkKind};

use crate::model::{AllocationRecord, EvacuatedProcess, Evacuation, LeaveOrder};
use crate::store::Rows;
use crate::translate;
use crate::working_set::Ledger;

/// A block or a drain in force, as an order to evacuate.
struct EvacuationOrder {
    /// `removal_no` of the block, or the number of the drain.
    number: u64,
    place: Affected,
    pace: Pace,
    reason: VacateReason,
    detail: String,
}

pub(super) enum Affected {
    Node(NodeName),
    /// The processes of one job or service on a node.
    WorkOn(NodeName, WorkId),
    Worker(AllocationId),
    /// No process, because the block names no valid node or worker.
    Nowhere,
}

#[derive(Clone, Copy)]
enum Pace {
    /// No process leaves.
    Mark,
    /// The planner vacates everything.
    Planned,
    AtOnce,
    /// Disruption limits decide how many processes leave at a time, until the given time.
    Limited {
        until: Until,
        paused: bool,
    },
}

#[derive(Clone, Copy)]
enum Until {
    Grace(u64),
    Deadline(Option<Timestamp>),
}

/// A process that could leave now.
struct Leaver {
    order: LeaveOrder,
    candidate: Candidate,
    paused: bool,
    way: Way,
}

impl Ledger {
    pub(crate) fn mark_departures(
        &mut self,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Vec<LeaveOrder> {
        let mut orders = if self.timing.stale_neighbour().is_none() {
            self.review_lost(moment, batch)
        } else {
            Vec::new()
        };
        for order in &orders {
            self.vacate(order.clone(), moment, batch);
        }
        self.successors.begin();
        let orders_by_key = self.evacuation_orders();
        if orders_by_key.is_empty() && self.evacuations.all.is_empty() {
            return orders;
        }
        self.update_evacuations(&orders_by_key, moment);
        self.settle_evacuations();
        self.evacuations.held_back.clear();
        // While a neighbour is silent, no process is ordered to leave.
        if self.timing.stale_neighbour().is_none() {
            let leave = self.choose_departures(&orders_by_key, moment.now);
            for order in &leave {
                self.vacate(order.clone(), moment, batch);
            }
            orders.extend(leave);
        }
        orders
    }

    fn evacuation_orders(&self) -> BTreeMap<String, EvacuationOrder> {
        let now = self.snapshot.now;
        let blocks = self.followed.blocks().iter();
        let blocks = blocks.filter(|(_, item)| translate::counts(item, now));
        let blocks = blocks.map(|(key, item)| (key.clone(), for_block(item)));
        let drains = self.followed.drained().filter_map(|node| {
            let drain = self.followed.nodes().get(node.as_str())?.drain.as_ref()?;
            Some((format!("drain/{node}"), for_drain(node, drain)))
        });
        blocks.chain(drains).collect()
    }

    /// Begins and ends evacuations, and records which processes each one concerns.
    fn update_evacuations(
        &mut self,
        orders_by_key: &BTreeMap<String, EvacuationOrder>,
        moment: &Moment,
    ) {
        let mut all = std::mem::take(&mut self.evacuations.all);
        all.retain(|key, known| {
            orders_by_key
                .get(key)
                .is_some_and(|it| it.number == known.number)
        });
        self.evacuations.deadlines.clear();
        for (key, order) in orders_by_key {
            let clearing = all.entry(key.clone()).or_insert_with(|| Evacuation {
                number: order.number,
                revision: moment.revision,
                since: moment.now,
                begun: None,
                members: BTreeMap::new(),
            });
            if matches!(order.pace, Pace::Mark) {
                continue;
            }
            let begun = *clearing.begun.get_or_insert(moment.now);
            let end = order.pace.end(begun).filter(|end| *end > moment.now);
            self.evacuations.deadlines.extend(end);
            for held in self.allocations_at(&order.place) {
                let entry = &held.entry;
                let last = self.allocations.last_incarnation(&entry.work);
                let after = last.unwrap_or(entry.incarnation);
                let fresh = || EvacuatedProcess {
                    work: entry.work.clone(),
                    after,
                    ordered_to_leave: false,
                    place_first: false,
                    ended: false,
                    settled: None,
                };
                let member = clearing.members.entry(entry.id.clone());
                let member = member.or_insert_with(fresh);
                if !member.ordered_to_leave {
                    member.after = after;
                }
            }
        }
        self.evacuations.all = all;
    }

    pub(super) fn allocations_at(&self, place: &Affected) -> Vec<&AllocationRecord> {
        match place {
            Affected::Node(node) => self.allocations.on_node(node).collect(),
            Affected::WorkOn(node, work) => self
                .allocations
                .on_node(node)
                .filter(|held| held.entry.work == *work || held.entry.work.whole() == *work)
                .collect(),
            Affected::Worker(id) => {
                let held = self.allocations.get(id).filter(|it| it.entry.holds());
                held.into_iter().collect()
            }
            Affected::Nowhere => Vec::new(),
        }
    }

    /// Chooses the processes that leave now. The oldest evacuation comes first. Under tight limits,
    /// one node is therefore empty before the next evacuation begins.
    fn choose_departures(
        &mut self,
        orders_by_key: &BTreeMap<String, EvacuationOrder>,
        now: Timestamp,
    ) -> Vec<LeaveOrder> {
        let list = self.all_leavers(orders_by_key, now);
        let (paused, list): (Vec<Leaver>, Vec<Leaver>) = list.into_iter().partition(|it| it.paused);
        let (stay, mut list): (Vec<Leaver>, Vec<Leaver>) =
            list.into_iter().partition(|it| it.way == Way::Stay);
        // A process whose search for a successor failed comes after the others.
        list.sort_by_key(|it| self.successors.last_attempt(&it.order.allocation));
        let moving = self.evacuations.moving();
        let candidates: Vec<Candidate> = list.iter().map(|it| it.candidate.clone()).collect();
        let may = may_leave(&candidates, &moving);
        let mut orders = Vec::new();
        for (leaver, may) in list.into_iter().zip(may) {
            match (may, leaver.way) {
                (true, Way::PlaceFirst) => self.successors.add(leaver.order),
                (true, _) => orders.push(leaver.order),
                (false, way) => {
                    self.hold_back(&leaver);
                    if way == Way::PlaceFirst {
                        let id = leaver.order.allocation;
                        self.successors.add_waiting(id, leaver.candidate.group);
                    }
                }
            }
        }
        for leaver in stay {
            let detail = "it is moved already, or starts when another has ended".to_owned();
            let why = (BlockerReason::Moving, detail);
            self.evacuations
                .held_back
                .insert(leaver.order.allocation, why);
        }
        for leaver in paused {
            let why = (BlockerReason::Paused, "the drain is paused".to_owned());
            self.evacuations
                .held_back
                .insert(leaver.order.allocation, why);
        }
        orders
    }

    /// Returns the processes that could leave, those of the oldest evacuation first. Each is listed
    /// once.
    fn all_leavers(
        &self,
        orders_by_key: &BTreeMap<String, EvacuationOrder>,
        now: Timestamp,
    ) -> Vec<Leaver> {
        let mut by_age: Vec<(&String, &EvacuationOrder)> = orders_by_key.iter().collect();
        by_age.sort_by_key(|(key, _)| {
            let begun = self.evacuations.all.get(*key).and_then(|it| it.begun);
            (begun, *key)
        });
        let mut leavers: BTreeMap<AllocationId, usize> = BTreeMap::new();
        let mut list: Vec<Leaver> = Vec::new();
        for (key, order) in by_age {
            for leaver in self.leavers(key, order, now) {
                let id = leaver.order.allocation.clone();
                let at = *leavers.entry(id).or_insert(list.len());
                match list.get_mut(at) {
                    None => list.push(leaver),
                    // Two evacuations name this process. The stronger order counts.
                    Some(known) if leaver.candidate.at_once => *known = leaver,
                    Some(known) if known.paused => *known = leaver,
                    Some(_) => {}
                }
            }
        }
        list
    }

    fn hold_back(&mut self, leaver: &Leaver) {
        let (group, limit) = (&leaver.candidate.group, leaver.candidate.limit.unwrap_or(0));
        let detail = format!("{group} lets {limit} of its processes be moved at one time");
        let why = (BlockerReason::DisruptionLimit, detail);
        let id = leaver.order.allocation.clone();
        self.evacuations.held_back.insert(id, why);
    }

    fn leavers(&self, key: &str, order: &EvacuationOrder, now: Timestamp) -> Vec<Leaver> {
        let begun = self.evacuations.all.get(key).and_then(|it| it.begun);
        let at_once = match order.pace {
            Pace::Mark | Pace::Planned => return Vec::new(),
            Pace::AtOnce => true,
            Pace::Limited { .. } => order
                .pace
                .end(begun.unwrap_or(now))
                .is_some_and(|it| it <= now),
        };
        let paused = matches!(order.pace, Pace::Limited { paused: true, .. });
        let at_once = at_once && !paused;
        let movable = self.allocations_at(&order.place).into_iter();
        movable
            .filter(|held| self.is_movable(held))
            .map(|held| Leaver {
                candidate: Candidate {
                    group: held.entry.work.whole(),
                    limit: self.disruption_limit(&held.entry.work),
                    at_once,
                },
                order: LeaveOrder {
                    allocation: held.entry.id.clone(),
                    reason: order.reason,
                    detail: self.detail(&held.entry.id, order, at_once),
                    purge: false,
                },
                paused,
                way: way(&self.leaver(held, at_once)),
            })
            .collect()
    }

    /// Returns the detail of an order. It names a failed search for a successor.
    fn detail(&self, id: &AllocationId, order: &EvacuationOrder, at_once: bool) -> String {
        match self.successors.why_not(id) {
            Some(why) if at_once => format!(
                "{}; its time is over and no next place was found in it: {why}",
                order.detail
            ),
            _ => order.detail.clone(),
        }
    }

    /// Returns true for a process without an earlier order to leave, on a node that is not lost.
    /// Reservations are never moved (I12).
    fn is_movable(&self, held: &AllocationRecord) -> bool {
        let entry = &held.entry;
        let lost = |node: &hayward_node_status_api::NodeEntry| node.health == Health::Lost;
        let node = self.followed.nodes().get(entry.node.as_str());
        entry.vacate.is_none()
            && entry.kind != WorkKind::Reservation
            && node.is_some_and(|node| !lost(node))
    }

    fn disruption_limit(&self, work: &WorkId) -> Option<u64> {
        self.followed.demand().get(work.as_str())?.disruption_limit
    }
}

impl Pace {
    /// Returns the time at which disruption limits no longer apply.
    fn end(self, begun: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Limited { until, .. } => match until {
                Until::Grace(ms) => Some(begun.plus_ms(ms)),
                Until::Deadline(at) => at,
            },
            _ => None,
        }
    }
}

/// Returns the processes that a block affects.
pub(super) fn place(item: &BlockEntry) -> Affected {
    let name = &item.identifier;
    let node = NodeName::new(name).ok();
    let place = match (item.kind, &item.job) {
        (BlockKind::Node, Some(job)) => node.map(|node| Affected::WorkOn(node, job.clone())),
        (BlockKind::Node, None) => node.map(Affected::Node),
        (BlockKind::Worker, _) => AllocationId::new(name).ok().map(Affected::Worker),
    };
    place.unwrap_or(Affected::Nowhere)
}

fn for_block(item: &BlockEntry) -> EvacuationOrder {
    let name = &item.identifier;
    let whole = item.kind == BlockKind::Node && item.job.is_none();
    let pace = match (item.action, item.evacuation) {
        _ if item.canary => Pace::Mark,
        (BlockAction::Mark, _) => Pace::Mark,
        (BlockAction::Evacuate, EvacuationPolicy::Graceful { grace_ms }) => Pace::Limited {
            until: Until::Grace(grace_ms),
            paused: false,
        },
        (BlockAction::Evacuate, EvacuationPolicy::Immediate) if whole => Pace::Planned,
        (BlockAction::Evacuate, EvacuationPolicy::Immediate) => Pace::AtOnce,
    };
    let detail = match (item.kind, &item.job) {
        (BlockKind::Worker, _) => format!("the worker is blocked: {}", item.cause),
        (_, Some(job)) => format!("node {name} is blocked for {job}: {}", item.cause),
        (_, None) => format!("node {name} is evacuated: {}", item.cause),
    };
    EvacuationOrder {
        number: item.removal_no,
        place: place(item),
        pace,
        reason: VacateReason::Blocked,
        detail,
    }
}

fn for_drain(node: &NodeName, drain: &DrainOrder) -> EvacuationOrder {
    EvacuationOrder {
        number: drain.number,
        place: Affected::Node(node.clone()),
        pace: Pace::Limited {
            until: Until::Deadline(drain.deadline),
            paused: drain.paused,
        },
        reason: VacateReason::Drained,
        detail: format!("node {node} is drained: {}", drain.reason),
    }
}
