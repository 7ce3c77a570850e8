//! A small fleet for tests: pool `out` and the pool below it are planned externally, pool `other`
//! is not. [`Fixture::carry_out`] applies a plan to the snapshot as the services would.

use std::collections::{BTreeMap, BTreeSet};

use hayward_rm_scheduler_domain::{
    Plan, Snapshot, check,
    plan::external_planner_effects::Refusal,
    snapshot::{
        Allocation, Class, Demand, Growth, Node, Policy, Pool,
        external_planners::{
            ExternalPlannerState, PlannerResponse, RequestedGrant, RequestedVacate,
        },
    },
};
use hayward_vocabulary::resources::GIB;
use hayward_vocabulary::{AllocationId, NodeName, Size, Timestamp, WorkId, WorkKind};

use crate::{ExternalPoolTrees, PlannerRequest, plan};

pub const POOL: &str = "out";

pub struct Fixture {
    pub snapshot: Snapshot,
    allocation_count: u64,
}

pub fn work(id: &str) -> WorkId {
    id.parse().unwrap()
}

pub fn node_name(name: &str) -> NodeName {
    name.parse().unwrap()
}

pub fn requested_grant(work: &str, node: &str, processes: u64) -> RequestedGrant {
    RequestedGrant {
        work: work.into(),
        node: node.into(),
        processes,
    }
}

pub fn requested_vacate(allocation: &str) -> RequestedVacate {
    RequestedVacate {
        allocation: allocation.into(),
        detail: "it is in the way".into(),
    }
}

impl Fixture {
    /// Creates nodes `n1` and `n2` of four quanta in `out`, `n3` in `below`, and `far` in `other`.
    pub fn new() -> Self {
        let mut snapshot = Snapshot::empty();
        snapshot.now = Timestamp::from_unix_ms(1_000_000);
        let below = Pool {
            parent: Some(POOL.into()),
            ..Pool::default()
        };
        snapshot.pools.insert(POOL.into(), Pool::default());
        snapshot.pools.insert("below".into(), below);
        snapshot.pools.insert("other".into(), Pool::default());
        snapshot
            .external_planners
            .insert(POOL.into(), ExternalPlannerState::default());
        let mut fixture = Self {
            snapshot,
            allocation_count: 0,
        };
        fixture.add_class("fair", Policy::FairShare, POOL);
        fixture.add_class("fixed", Policy::FixedShare, POOL);
        fixture.add_class("whole", Policy::Reserve, POOL);
        fixture.add_class("else", Policy::FairShare, "other");
        for (name, pool) in [
            ("n1", POOL),
            ("n2", POOL),
            ("n3", "below"),
            ("far", "other"),
        ] {
            fixture.add_node(name, pool);
        }
        fixture
    }

    fn add_class(&mut self, name: &str, policy: Policy, pool: &str) {
        let class = Class {
            policy,
            priority: 10,
            weight: 100,
            pool: pool.into(),
            default: false,
            users: BTreeSet::new(),
            position: 0,
            debug_class: None,
            growth: Growth::default(),
        };
        self.snapshot.classes.insert(name.into(), class);
    }

    pub fn add_node(&mut self, name: &str, pool: &str) -> &mut Node {
        let node = Node {
            pool: pool.into(),
            capacity: Size {
                gpu_milli: 2_000,
                ..Size::memory(4 * GIB)
            },
            takes_work: true,
            lost: false,
            offline: false,
            block: None,
            labels: BTreeMap::new(),
        };
        let nodes = &mut self.snapshot.nodes;
        nodes.entry(node_name(name)).or_insert(node)
    }

    pub fn node_mut(&mut self, name: &str) -> &mut Node {
        self.snapshot.nodes.get_mut(&node_name(name)).unwrap()
    }

    /// Adds a job of `ann` with this many processes of one quantum.
    pub fn add_job(&mut self, id: &str, class: &str, processes: u64) -> &mut Demand {
        let submission = self.snapshot.demand.len() as u64;
        let demand = Demand {
            kind: WorkKind::Job,
            user: "ann".parse().unwrap(),
            class: Some(class.into()),
            submitted_at: Timestamp::from_unix_ms(1_000).plus_ms(submission),
            size: Size::memory(GIB),
            max_processes: processes,
            remaining_tasks: 1_000,
            threads: 1,
            task_ms: None,
            node_list: BTreeSet::new(),
            avoids: BTreeSet::new(),
            service: None,
            anti_affinity: None,
            managed: false,
            runnable: true,
            completing: false,
            keeps_what_it_holds: false,
            queued: None,
        };
        self.snapshot.demand.entry(work(id)).or_insert(demand)
    }

    pub fn demand_mut(&mut self, id: &str) -> &mut Demand {
        self.snapshot.demand.get_mut(&work(id)).unwrap()
    }

    pub fn planner_mut(&mut self) -> &mut ExternalPlannerState {
        self.snapshot.external_planners.get_mut(POOL).unwrap()
    }

    pub fn plan(&self) -> Plan {
        let mut result = Plan {
            round: self.snapshot.round,
            at: self.snapshot.now,
            ..Plan::default()
        };
        plan(&self.snapshot, &mut result);
        assert_eq!(check(&self.snapshot, &result), Ok(()), "{result:#?}");
        result
    }

    /// Plans with a new response of these steps, and carries the plan out.
    pub fn respond(&mut self, grants: Vec<RequestedGrant>, vacates: Vec<RequestedVacate>) -> Plan {
        let response = PlannerResponse {
            number: self.snapshot.round + 1,
            grants,
            vacates,
            notes: BTreeMap::new(),
        };
        self.planner_mut().response = Some(response);
        let plan = self.plan();
        self.carry_out(&plan);
        plan
    }

    /// Applies a plan to the snapshot as the services would, except that the response stays.
    pub fn carry_out(&mut self, plan: &Plan) {
        self.snapshot
            .allocations
            .retain(|_, allocation| !allocation.leaving);
        for vacate in &plan.vacates {
            // An allocation that was vacated in an earlier round has left, even if it is vacated
            // again.
            if let Some(allocation) = self.snapshot.allocations.get_mut(&vacate.allocation) {
                allocation.leaving = true;
            }
        }
        for grant in &plan.grants {
            self.allocation_count += 1;
            let id = AllocationId::new(format!("alc_{}", self.allocation_count)).unwrap();
            let allocation = Allocation {
                running: true,
                running_since: Some(self.snapshot.now),
                ..grant.to_allocation(self.snapshot.now)
            };
            self.snapshot.allocations.insert(id, allocation);
        }
        self.snapshot.carried = plan.carried.clone();
        for (pool, outcome) in &plan.external_planners {
            let planner = self.snapshot.external_planners.get_mut(pool).unwrap();
            planner.last_result = Some(outcome.result.clone());
        }
        self.snapshot.round += 1;
        self.snapshot.now = self.snapshot.now.plus_ms(1_000);
    }

    pub fn planner_request(&self) -> Option<PlannerRequest> {
        PlannerRequest::new(
            &self.snapshot,
            &ExternalPoolTrees::new(&self.snapshot),
            POOL,
            self.snapshot.round,
        )
    }

    pub fn process_count(&self, id: &str) -> usize {
        let allocations = self.snapshot.allocations.values();
        allocations
            .filter(|it| it.work.as_str() == id && !it.leaving)
            .count()
    }
}

pub fn refusals(plan: &Plan) -> Vec<Refusal> {
    let outcome = plan.external_planners.get(POOL);
    let refused = outcome.into_iter().flat_map(|outcome| &outcome.refused);
    refused.map(|it| it.reason).collect()
}
