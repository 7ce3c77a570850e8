//! Settings of the planner in the policy: tunables, which come from the specification, and
//! switches, which turn single rules on or off.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The tunables in use here. Decision 0009 explains values that differ from the specification.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one tunable of the specification"
)]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Tunables {
    /// GB of non-preemptable space of one user; absent means no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub global_allotment_gb: Option<u64>,
    /// Quanta of non-preemptable space of one user; absent means no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub global_allotment_quanta: Option<u64>,
    /// If false, the global allotment is ignored. Users with an allotment of their own keep it.
    pub use_global_allotment: bool,
    /// Maximum number of processes of a job before its first task has finished; 0 means no such
    /// limit.
    pub initialization_cap: u64,
    /// True if a job at most doubles its processes from round to round.
    pub expand_by_doubling: bool,
    /// True if a job gets no further process when it is expected to end before the process could do
    /// useful work.
    #[serde(rename = "prediction", alias = "use_prediction")]
    pub use_prediction: bool,
    /// Milliseconds that the prediction looks ahead after the start of a new process, in addition
    /// to the time between two rounds.
    pub prediction_fudge_ms: u64,
    /// True if free space that is split over nodes is defragmented.
    pub defragmentation: bool,
    /// Number of processes that separates receivers and donors of defragmentation: space is
    /// defragmented for work with fewer processes, and taken from work with at least so many.
    pub fragmentation_threshold: u64,
    /// GB by which a node may exceed the size of a reservation; absent means any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserve_overage_gb: Option<u64>,
    /// GB withheld on every node.
    pub node_reserved_gb: u64,
    /// GB of memory of every node, in place of the memory that it reports; 0 uses the reported
    /// memory. For tests only.
    pub node_memory_override_gb: u64,
}

impl Default for Tunables {
    fn default() -> Self {
        Self {
            global_allotment_gb: None,
            global_allotment_quanta: None,
            use_global_allotment: true,
            initialization_cap: 2,
            expand_by_doubling: true,
            use_prediction: true,
            prediction_fudge_ms: 10_000,
            defragmentation: true,
            fragmentation_threshold: 8,
            reserve_overage_gb: None,
            node_reserved_gb: 0,
            node_memory_override_gb: 0,
        }
    }
}

/// Named set of values for all settings of the planner. `default` turns on the improvements on the
/// rules of the specification, and `reference` keeps to these rules.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// All improvements on the rules are on, except `exchange` and `holes_among_rivals`.
    #[default]
    Default,
    /// All improvements on the rules are off, and preemption is unlimited.
    Reference,
}

/// Switches of the planner. Absent ones have the value of the profile.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Switches {
    /// Processes in a pool below their own leave first, and return when there is space (W-13).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub squatters_go_home: Option<bool>,
    /// Rounds before defragmentation takes from the same work again; 0 means none (W-32).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub churn_rounds: Option<u64>,
    /// Preemption budget of a pool for an hour, in percent of all its quanta; 0 is nothing, 1000000
    /// no limit. The profile `default` has 400, `reference` no limit (B5).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemption_pool_percent_per_hour: Option<u64>,
    /// Preemption budget of a user for an hour, in percent of all quanta of the top-level pool; 0
    /// is nothing, 1000000 no limit. The profile `default` has 200, `reference` no limit (B5).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemption_user_percent_per_hour: Option<u64>,
    /// Idle space beyond all entitlements is lent to fair-share work that can use more processes
    /// (decision 0006).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lend_idle: Option<bool>,
    /// Lent space is not limited by the initialization cap and doubling, so a job may use all free
    /// space at once (TC-10).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grow_into_free_space: Option<bool>,
    /// Work other than jobs gets a successor after its node was lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replace_lost: Option<bool>,
    /// Processes change places if entitled work then starts (W-3).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exchange: Option<bool>,
    /// With gpus in demand, a process is placed where the rest stays most useful (W-2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pack_gpus: Option<bool>,
    // The switches from here on stay in the format, so that documents with them are accepted.
    /// Accepted and ignored; `profile` decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub carry_remainders: Option<bool>,
    /// Accepted and ignored; `profile` decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count_leaving_room: Option<bool>,
    /// Accepted and ignored; `profile` decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spare_donors: Option<bool>,
    /// Accepted and ignored; `profile` decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count_what_fits: Option<bool>,
    /// Accepted and ignored; `profile` decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pack: Option<bool>,
    /// Accepted and ignored; `profile` decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evict_for_somebody: Option<bool>,
    /// Accepted and ignored; `profile` decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clear_promised: Option<bool>,
    /// Accepted and ignored; `profile` decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relieve_shrunken: Option<bool>,
    /// Accepted and ignored; `profile` decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rest_on_closed: Option<bool>,
    /// Accepted and ignored; `profile` decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserve_whole_nodes: Option<bool>,
    /// Accepted and ignored; `profile` decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steady_counts: Option<bool>,
    /// Accepted and ignored; `profile` decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level_remainders: Option<bool>,
    /// Accepted and ignored; `profile` decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holes_among_rivals: Option<bool>,
    /// Accepted and ignored; `profile` decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lose_least: Option<bool>,
}

impl Switches {
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the names of the switches that have a value and are ignored.
    #[must_use]
    pub fn ignored_names(&self) -> Vec<&'static str> {
        let switches = [
            ("carry_remainders", self.carry_remainders),
            ("count_leaving_room", self.count_leaving_room),
            ("spare_donors", self.spare_donors),
            ("count_what_fits", self.count_what_fits),
            ("pack", self.pack),
            ("evict_for_somebody", self.evict_for_somebody),
            ("clear_promised", self.clear_promised),
            ("relieve_shrunken", self.relieve_shrunken),
            ("rest_on_closed", self.rest_on_closed),
            ("reserve_whole_nodes", self.reserve_whole_nodes),
            ("steady_counts", self.steady_counts),
            ("level_remainders", self.level_remainders),
            ("holes_among_rivals", self.holes_among_rivals),
            ("lose_least", self.lose_least),
        ];
        let present = switches.into_iter().filter(|(_, value)| value.is_some());
        present.map(|(name, _)| name).collect()
    }
}
