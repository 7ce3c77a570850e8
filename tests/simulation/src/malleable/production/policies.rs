//! Policies that are made for a trace, and among whom a policy divides.

use std::collections::BTreeMap;

use hayward_rm_scheduler_api::policy::{Policy, SharePolicy};
use hayward_rm_scheduler_domain::snapshot;
use hayward_rm_scheduler_policy::Rules;
use hayward_vocabulary::{Quantum, Size};

use super::{MIB, Production};
use crate::{case::Case, measure::Fairness, trace::Node};

/// A divisor of a thousand. A finer quantum loses less to rounding and moves more processes.
const QUANTA_OF_A_CORE: u64 = 20;
/// Percent of a budget for taking back (B5).
const NO_LIMIT: u64 = 1_000_000;

impl Production {
    /// What is measured is how near everybody is to the due of the moment. So the quantum is fine,
    /// for what an order is rounded up by is had by nobody; large processes get their due of the
    /// holes (W-4); processes change places where what is due finds no room (W-3); and remainders
    /// are not carried over, since paying them takes from others now.
    pub fn even(case: &Case) -> Policy {
        let part = |node: &Node| (node.memory_mib * 1000).checked_div(node.cpu_milli);
        let memory = case
            .nodes
            .iter()
            .filter_map(part)
            .min()
            .filter(|part| *part > 0);
        let mut policy = Policy {
            quantum: Quantum(Size {
                memory_bytes: memory.map_or(1 << 30, |memory| memory * MIB) / QUANTA_OF_A_CORE,
                cpu_milli: 1000 / QUANTA_OF_A_CORE,
                ..Size::default()
            }),
            ..Policy::default()
        };
        policy
            .classes
            .retain(|_, class| class.default && class.policy == Some(SharePolicy::FairShare));
        policy.tunables.initialization_cap = 0;
        policy.tunables.expand_by_doubling = false;
        policy.tunables.use_prediction = false;
        policy.settings.holes_among_rivals = Some(true);
        policy.settings.exchange = Some(true);
        policy.settings.carry_remainders = Some(false);
        // What counts is the due of the moment, and taking back costs nothing here.
        policy.settings.preemption_pool_percent_per_hour = Some(NO_LIMIT);
        policy.settings.preemption_user_percent_per_hour = Some(NO_LIMIT);
        policy
    }

    /// The same with classes of these weights before the users. Work of other classes weighs 1.
    pub fn weighted(case: &Case, weights: &BTreeMap<String, u64>) -> Policy {
        let mut policy = Self::even(case);
        let Some(mut plain) = policy.classes.values().next().cloned() else {
            return policy;
        };
        for class in policy.classes.values_mut() {
            class.weight = Some(1);
        }
        for (name, weight) in weights {
            // One of them may have the name of the class that was there, which serves the others.
            plain.default = policy.classes.get(name).is_some_and(|class| class.default);
            plain.weight = Some(*weight);
            policy.classes.insert(name.clone(), plain.clone());
        }
        policy
    }

    /// Among whom this policy divides: its FAIR_SHARE classes by their weights. What queues are to
    /// have is theirs by guarantees, which no weight says; beside them stand users.
    pub fn fairness(policy: &Policy) -> Fairness {
        let rules = Rules::new(policy);
        if !rules.queues.is_empty() {
            return Fairness::Users;
        }
        let classes = rules.classes;
        let fair = classes
            .into_iter()
            .filter(|(_, class)| class.policy == snapshot::Policy::FairShare);
        let weights: BTreeMap<String, u64> =
            fair.map(|(name, class)| (name, class.weight)).collect();
        if weights.len() < 2 {
            return Fairness::Users;
        }
        Fairness::Classes(weights)
    }
}
