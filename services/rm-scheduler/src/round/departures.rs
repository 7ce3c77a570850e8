//! Orders processes to leave before a round is planned, so that the plan can grant their
//! successors.
//!
//! The causes are a blocked worker, a node that is blocked for one job or service, a drain, and a
//! graceful evacuation. Disruption limits bound how many processes leave at a time. A process of a
//! service leaves only after its successor is reserved ([`super::reserve_successors`]), unless the
//! deadline of the order has passed.
//!
//! A node that is evacuated immediately is vacated by the planner. This module only records the
//! progress of such an evacuation.

use std::collections::BTreeMap;

use hayward_blocklist_api::{BlockAction, BlockEntry, BlockKind, EvacuationPolicy};
use hayward_node_status_api::{DrainOrder, Health};
use hayward_publication::{Batch, Moment};
use hayward_rm_scheduler_api::VacateReason;
use hayward_rm_scheduler_api::node_publications::BlockerReason;
use hayward_rm_scheduler_domain::disruption::{Candidate, may_leave};
use hayward_rm_scheduler_domain::evacuation::{DepartureMode, departure_mode};
use hayward_vocabulary::{AllocationId, NodeName, Timestamp, WorkId, WorkKind};

use crate::model::{AllocationRecord, EvacuatedProcess, Evacuation, LeaveOrder};
use crate::store::Rows;
use crate::translate;
use crate::working_set::Ledger;

/// A block or a drain in force, as an order to evacuate a node, one piece of work or a worker.
struct EvacuationOrder {
    /// `removal_no` of the block, or the number of the drain.
    number: u64,
    affected: AffectedProcesses,
    pace: Pace,
    reason: VacateReason,
    detail: String,
}

/// The processes that a block or a drain concerns.
pub(super) enum AffectedProcesses {
    /// All processes on a node.
    OnNode(NodeName),
    /// The processes of one job or service on a node.
    OfWorkOnNode(NodeName, WorkId),
    Worker(AllocationId),
    /// No process, because the block names no valid node or worker.
    None,
}

/// Speed at which the affected processes leave.
#[derive(Clone, Copy)]
enum Pace {
    /// No process leaves. Processes on the node only get no new tasks.
    MarkOnly,
    /// The planner vacates the whole node in the plan of this round.
    ByPlanner,
    /// All processes get their order to leave before this round is planned.
    AtOnce,
    /// Disruption limits decide how many processes leave at a time. They apply until `end`.
    Limited { end: LimitsEnd, paused: bool },
}

/// The time from which disruption limits no longer apply.
#[derive(Clone, Copy)]
enum LimitsEnd {
    /// Milliseconds from the begin of the evacuation.
    AfterGrace(u64),
    /// `None` if there is no deadline.
    AtDeadline(Option<Timestamp>),
}

/// A process that could leave now, with its order.
struct Departure {
    order: LeaveOrder,
    candidate: Candidate,
    paused: bool,
    mode: DepartureMode,
}

impl Ledger {
    /// Orders processes to leave that are due now. Returns the orders.
    pub(crate) fn order_departures(
        &mut self,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Vec<LeaveOrder> {
        let mut orders = if self.timing.stale_neighbour().is_none() {
            self.review_lost_nodes(moment, batch)
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
            let chosen = self.choose_departures(&orders_by_key, moment.now);
            for order in &chosen {
                self.vacate(order.clone(), moment, batch);
            }
            orders.extend(chosen);
        }
        orders
    }

    /// Returns the blocks in force by their key, and the drains by `drain/NAME`.
    fn evacuation_orders(&self) -> BTreeMap<String, EvacuationOrder> {
        let now = self.snapshot.now;
        let blocks = self.followed.blocks().iter();
        let blocks = blocks.filter(|(_, block)| translate::is_effective(block, now));
        let blocks = blocks.map(|(key, block)| (key.clone(), order_for_block(block)));
        let drains = self.followed.drained_nodes().filter_map(|node| {
            let drain = self.followed.nodes().get(node.as_str())?.drain.as_ref()?;
            Some((format!("drain/{node}"), order_for_drain(node, drain)))
        });
        blocks.chain(drains).collect()
    }

    /// Begins and ends evacuations, and records the processes of each evacuation.
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
            let evacuation = all.entry(key.clone()).or_insert_with(|| Evacuation {
                number: order.number,
                revision: moment.revision,
                since: moment.now,
                begun: None,
                members: BTreeMap::new(),
            });
            if matches!(order.pace, Pace::MarkOnly) {
                continue;
            }
            let begun = *evacuation.begun.get_or_insert(moment.now);
            let end = order.pace.end(begun).filter(|end| *end > moment.now);
            self.evacuations.deadlines.extend(end);
            for record in self.allocations_at(&order.affected) {
                let entry = &record.entry;
                let last_incarnation = self.allocations.last_incarnation(&entry.work);
                let last_incarnation = last_incarnation.unwrap_or(entry.incarnation);
                let new_member = || EvacuatedProcess {
                    work: entry.work.clone(),
                    evacuated_incarnation: last_incarnation,
                    ordered_to_leave: false,
                    successor_reserved: false,
                    ended: false,
                    settled: None,
                };
                let member = evacuation.members.entry(entry.id.clone());
                let member = member.or_insert_with(new_member);
                if !member.ordered_to_leave {
                    member.evacuated_incarnation = last_incarnation;
                }
            }
        }
        self.evacuations.all = all;
    }

    pub(super) fn allocations_at(&self, affected: &AffectedProcesses) -> Vec<&AllocationRecord> {
        match affected {
            AffectedProcesses::OnNode(node) => self.allocations.on_node(node).collect(),
            AffectedProcesses::OfWorkOnNode(node, work) => self
                .allocations
                .on_node(node)
                .filter(|record| record.entry.work == *work || record.entry.work.parent() == *work)
                .collect(),
            AffectedProcesses::Worker(id) => {
                let record = self.allocations.get(id).filter(|it| it.entry.holds());
                record.into_iter().collect()
            }
            AffectedProcesses::None => Vec::new(),
        }
    }

    /// Chooses the processes that leave now, those of the oldest evacuation first. If the
    /// disruption limits are low, the nodes therefore become empty one after the other.
    fn choose_departures(
        &mut self,
        orders_by_key: &BTreeMap<String, EvacuationOrder>,
        now: Timestamp,
    ) -> Vec<LeaveOrder> {
        let departures = self.all_departures(orders_by_key, now);
        let (paused, active): (Vec<Departure>, Vec<Departure>) =
            departures.into_iter().partition(|it| it.paused);
        let (staying, mut leaving): (Vec<Departure>, Vec<Departure>) = active
            .into_iter()
            .partition(|it| it.mode == DepartureMode::Stay);
        // Processes whose search for a successor failed come last.
        leaving.sort_by_key(|it| self.successors.last_attempt(&it.order.allocation));
        let moving = self.evacuations.moving();
        let candidates: Vec<Candidate> = leaving.iter().map(|it| it.candidate.clone()).collect();
        let allowed = may_leave(&candidates, &moving);
        let mut orders = Vec::new();
        for (departure, is_allowed) in leaving.into_iter().zip(allowed) {
            match (is_allowed, departure.mode) {
                (true, DepartureMode::AfterSuccessor) => self.successors.add(departure.order),
                (true, _) => orders.push(departure.order),
                (false, mode) => {
                    self.record_disruption_limit(&departure);
                    if mode == DepartureMode::AfterSuccessor {
                        let id = departure.order.allocation;
                        self.successors.add_limited(id, departure.candidate.group);
                    }
                }
            }
        }
        for departure in staying {
            let detail = "it is moved already, or starts when another has ended".to_owned();
            let reason = (BlockerReason::Moving, detail);
            self.evacuations
                .held_back
                .insert(departure.order.allocation, reason);
        }
        for departure in paused {
            let reason = (BlockerReason::Paused, "the drain is paused".to_owned());
            self.evacuations
                .held_back
                .insert(departure.order.allocation, reason);
        }
        orders
    }

    /// Returns the processes that could leave, those of the oldest evacuation first. A process in
    /// two evacuations is listed once.
    fn all_departures(
        &self,
        orders_by_key: &BTreeMap<String, EvacuationOrder>,
        now: Timestamp,
    ) -> Vec<Departure> {
        let mut by_age: Vec<(&String, &EvacuationOrder)> = orders_by_key.iter().collect();
        by_age.sort_by_key(|(key, _)| {
            let begun = self.evacuations.all.get(*key).and_then(|it| it.begun);
            (begun, *key)
        });
        let mut indices: BTreeMap<AllocationId, usize> = BTreeMap::new();
        let mut departures: Vec<Departure> = Vec::new();
        for (key, order) in by_age {
            for departure in self.departures_for(key, order, now) {
                let id = departure.order.allocation.clone();
                let index = *indices.entry(id).or_insert(departures.len());
                match departures.get_mut(index) {
                    None => departures.push(departure),
                    // Two evacuations name this process. The order that empties its node faster
                    // counts.
                    Some(known) if departure.candidate.at_once => *known = departure,
                    Some(known) if known.paused => *known = departure,
                    Some(_) => {}
                }
            }
        }
        departures
    }

    /// Records that the disruption limit holds this process back.
    fn record_disruption_limit(&mut self, departure: &Departure) {
        let (group, limit) = (
            &departure.candidate.group,
            departure.candidate.limit.unwrap_or(0),
        );
        let detail = format!("{group} lets {limit} of its processes be moved at one time");
        let reason = (BlockerReason::DisruptionLimit, detail);
        let id = departure.order.allocation.clone();
        self.evacuations.held_back.insert(id, reason);
    }

    /// Returns the processes that could leave because of one order.
    fn departures_for(&self, key: &str, order: &EvacuationOrder, now: Timestamp) -> Vec<Departure> {
        let begun = self.evacuations.all.get(key).and_then(|it| it.begun);
        let at_once = match order.pace {
            Pace::MarkOnly | Pace::ByPlanner => return Vec::new(),
            Pace::AtOnce => true,
            Pace::Limited { .. } => order
                .pace
                .end(begun.unwrap_or(now))
                .is_some_and(|it| it <= now),
        };
        let paused = matches!(order.pace, Pace::Limited { paused: true, .. });
        let at_once = at_once && !paused;
        let movable = self.allocations_at(&order.affected).into_iter();
        movable
            .filter(|record| self.is_movable(record))
            .map(|record| Departure {
                candidate: Candidate {
                    group: record.entry.work.parent(),
                    limit: self.disruption_limit(&record.entry.work),
                    at_once,
                },
                order: LeaveOrder {
                    allocation: record.entry.id.clone(),
                    reason: order.reason,
                    detail: self.leave_detail(&record.entry.id, order, at_once),
                    purge: false,
                },
                paused,
                mode: departure_mode(&self.leaving_process(record, at_once)),
            })
            .collect()
    }

    /// Returns the detail of an order to leave. If the deadline has passed, the detail says why the
    /// search for a successor failed.
    fn leave_detail(&self, id: &AllocationId, order: &EvacuationOrder, at_once: bool) -> String {
        match self.successors.failure_reason(id) {
            Some(why) if at_once => format!(
                "{}; its time is over and no next place was found in it: {why}",
                order.detail
            ),
            _ => order.detail.clone(),
        }
    }

    /// Returns true for a process without an earlier order to leave, on a node that is not lost.
    /// Reservations are never moved (I12).
    fn is_movable(&self, record: &AllocationRecord) -> bool {
        let entry = &record.entry;
        let is_lost = |node: &hayward_node_status_api::NodeEntry| node.health == Health::Lost;
        let node = self.followed.nodes().get(entry.node.as_str());
        entry.vacate.is_none()
            && entry.kind != WorkKind::Reservation
            && node.is_some_and(|node| !is_lost(node))
    }

    fn disruption_limit(&self, work: &WorkId) -> Option<u64> {
        self.followed.demand().get(work.as_str())?.disruption_limit
    }
}

impl Pace {
    /// Returns the time at which disruption limits no longer apply.
    fn end(self, begun: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Limited { end, .. } => match end {
                LimitsEnd::AfterGrace(ms) => Some(begun.plus_ms(ms)),
                LimitsEnd::AtDeadline(at) => at,
            },
            _ => None,
        }
    }
}

/// Returns the processes that a block affects.
pub(super) fn affected_by(block: &BlockEntry) -> AffectedProcesses {
    let name = &block.identifier;
    let node = NodeName::new(name).ok();
    let affected = match (block.kind, &block.job) {
        (BlockKind::Node, Some(job)) => {
            node.map(|node| AffectedProcesses::OfWorkOnNode(node, job.clone()))
        }
        (BlockKind::Node, None) => node.map(AffectedProcesses::OnNode),
        (BlockKind::Worker, _) => AllocationId::new(name).ok().map(AffectedProcesses::Worker),
    };
    affected.unwrap_or(AffectedProcesses::None)
}

fn order_for_block(block: &BlockEntry) -> EvacuationOrder {
    let name = &block.identifier;
    let is_whole_node = block.kind == BlockKind::Node && block.job.is_none();
    let pace = match (block.action, block.evacuation) {
        _ if block.canary => Pace::MarkOnly,
        (BlockAction::Mark, _) => Pace::MarkOnly,
        (BlockAction::Evacuate, EvacuationPolicy::Graceful { grace_ms }) => Pace::Limited {
            end: LimitsEnd::AfterGrace(grace_ms),
            paused: false,
        },
        (BlockAction::Evacuate, EvacuationPolicy::Immediate) if is_whole_node => Pace::ByPlanner,
        (BlockAction::Evacuate, EvacuationPolicy::Immediate) => Pace::AtOnce,
    };
    let detail = match (block.kind, &block.job) {
        (BlockKind::Worker, _) => format!("the worker is blocked: {}", block.cause),
        (_, Some(job)) => format!("node {name} is blocked for {job}: {}", block.cause),
        (_, None) => format!("node {name} is evacuated: {}", block.cause),
    };
    EvacuationOrder {
        number: block.removal_no,
        affected: affected_by(block),
        pace,
        reason: VacateReason::Blocked,
        detail,
    }
}

fn order_for_drain(node: &NodeName, drain: &DrainOrder) -> EvacuationOrder {
    EvacuationOrder {
        number: drain.number,
        affected: AffectedProcesses::OnNode(node.clone()),
        pace: Pace::Limited {
            end: LimitsEnd::AtDeadline(drain.deadline),
            paused: drain.paused,
        },
        reason: VacateReason::Drained,
        detail: format!("node {node} is drained: {}", drain.reason),
    }
}
