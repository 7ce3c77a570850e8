//! Policies that are made for a trace, and the fairness that a policy aims at.

use std::collections::BTreeMap;

use hayward_rm_scheduler_api::policy::{Policy, SharePolicy};
use hayward_rm_scheduler_domain::snapshot;
use hayward_rm_scheduler_policy::Rules;
use hayward_vocabulary::{Quantum, Size};

use super::{MIB, ProductionPlanner};
use crate::{case::Case, measure::Fairness, trace::Node};

/// Quanta in one core, a divisor of 1000. A finer quantum loses less to rounding, but moves more
/// processes.
const QUANTA_PER_CORE: u64 = 20;
/// A preemption budget that never limits, in percent per hour (B5).
const UNLIMITED_PERCENT: u64 = 1_000_000;

impl ProductionPlanner {
    /// Returns a policy that follows the current entitlement as closely as possible. The quantum is
    /// fine, because the amount by which a size is rounded up is wasted. Processes change nodes if
    /// an entitled process finds no space.
    pub fn even(case: &Case) -> Policy {
        let memory_per_core = |node: &Node| (node.memory_mib * 1000).checked_div(node.cpu_milli);
        let memory = case
            .nodes
            .iter()
            .filter_map(memory_per_core)
            .min()
            .filter(|memory| *memory > 0);
        let mut policy = Policy {
            quantum: Quantum(Size {
                memory_bytes: memory.map_or(1 << 30, |memory| memory * MIB) / QUANTA_PER_CORE,
                cpu_milli: 1000 / QUANTA_PER_CORE,
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
        policy.settings.exchange = Some(true);
        // Preemption costs nothing in the simulation, so the budget must not limit it.
        policy.settings.preemption_pool_percent_per_hour = Some(UNLIMITED_PERCENT);
        policy.settings.preemption_user_percent_per_hour = Some(UNLIMITED_PERCENT);
        policy
    }

    /// Returns the policy of [`Self::even`] with classes of these weights above the users. Other
    /// classes have weight 1.
    pub fn weighted(case: &Case, weights: &BTreeMap<String, u64>) -> Policy {
        let mut policy = Self::even(case);
        let Some(mut template) = policy.classes.values().next().cloned() else {
            return policy;
        };
        for class in policy.classes.values_mut() {
            class.weight = Some(1);
        }
        for (name, weight) in weights {
            // The replaced class is the default class. A class of the trace with the same name
            // stays the default.
            template.default = policy.classes.get(name).is_some_and(|class| class.default);
            template.weight = Some(*weight);
            policy.classes.insert(name.clone(), template.clone());
        }
        policy
    }

    /// Returns the fairness that this policy aims at: its FAIR_SHARE classes by their weights.
    /// Queues divide by guarantees and not by weights, so they are compared by users.
    pub fn fairness(policy: &Policy) -> Fairness {
        let rules = Rules::new(policy);
        if !rules.queues.is_empty() {
            return Fairness::Users;
        }
        let classes = rules.classes;
        let fair_share_classes = classes
            .into_iter()
            .filter(|(_, class)| class.policy == snapshot::Policy::FairShare);
        let weights: BTreeMap<String, u64> = fair_share_classes
            .map(|(name, class)| (name, class.weight))
            .collect();
        if weights.len() < 2 {
            return Fairness::Users;
        }
        Fairness::Classes(weights)
    }
}
