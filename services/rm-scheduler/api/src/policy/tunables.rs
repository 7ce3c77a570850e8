//! Tunables (fair-share 3.5), and the switches of the planner.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The tunables that mean something here. Where a value is another than the one the specification
/// ships, decision 0009 says why.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one tunable of the specification"
)]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Tunables {
    /// GB of non-preemptable room one user may hold; absent means no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub global_allotment_gb: Option<u64>,
    /// The same in quanta.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub global_allotment_quanta: Option<u64>,
    /// False leaves only the limits that users have of their own.
    pub use_global_allotment: bool,
    /// Processes a job may have before its first task has finished; 0 disables.
    pub initialization_cap: u64,
    /// A job at most doubles its processes from round to round.
    pub expand_by_doubling: bool,
    /// Do not grow a job that will be done before the new process could help.
    #[serde(rename = "prediction", alias = "use_prediction")]
    pub use_prediction: bool,
    /// Milliseconds added to the prediction's horizon.
    pub prediction_fudge_ms: u64,
    /// Mend split room (section 12).
    pub defragmentation: bool,
    /// Split room is mended for work below this many processes, at the cost of work at or above.
    pub fragmentation_threshold: u64,
    /// GB by which a machine may exceed what a reservation asked for; absent means any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserve_overage_gb: Option<u64>,
    /// GB withheld on every node.
    pub node_reserved_gb: u64,
    /// Pretend every node has so many GB; 0 does not. For tests only.
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

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Preset {
    /// Every weakness that can be beaten is beaten, each by a switch of its own.
    #[default]
    Default,
    /// The rules with their corrections, and nothing else.
    Reference,
}

impl Preset {
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde hands over a reference"
    )]
    pub(super) fn is_default(&self) -> bool {
        *self == Self::Default
    }
}

/// Switches of the planner; what is absent stands as the preset has it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Switches {
    /// W-4, W-5, W-6: what rounding kept from a class or user is owed, and paid in later rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub carry_remainders: Option<bool>,
    /// W-13: processes in a pool below their own go first, and go home when there is room.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub squatters_go_home: Option<bool>,
    /// W-14: space that is leaving counts when room is mended, so nothing is cleared twice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count_leaving_room: Option<bool>,
    /// W-21: mending never takes a donor below the threshold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spare_donors: Option<bool>,
    /// W-1, W-12: nothing is counted that no node it may use could hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count_what_fits: Option<bool>,
    /// W-2, W-3: large processes are placed first where that leaves nobody without a place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pack: Option<bool>,
    /// W-32: rounds that pass before mending takes from the same work again; 0 means none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub churn_rounds: Option<u64>,
    /// B5: what may be taken back for others in an hour from a pool, in percent of all quanta it
    /// has; 0 is nothing, 1000000 no limit. The preset `default` has 400, `reference` no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemption_pool_percent_per_hour: Option<u64>,
    /// B5: what may be taken back for others in an hour from one user, in percent of all quanta of
    /// the top-level pool; 0 is nothing, 1000000 no limit. The preset `default` has 200,
    /// `reference` no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemption_user_percent_per_hour: Option<u64>,
    /// Overage is taken back only where that lets waiting work in (decision 0006).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evict_for_somebody: Option<bool>,
    /// Room that no count claims is lent out (decision 0006).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lend_idle: Option<bool>,
    /// W-33: a node promised to a reservation is kept for it, and cleared at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clear_promised: Option<bool>,
    /// W-20: a node that shrank below its load is relieved first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relieve_shrunken: Option<bool>,
    /// Work other than jobs gets a successor after its node was lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replace_lost: Option<bool>,
    /// Processes on nodes that take no new work stay out of the counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rest_on_closed: Option<bool>,
    /// Reservations are whole nodes, so only `RESERVE` classes serve them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserve_whole_nodes: Option<bool>,
    /// Growth that costs nobody anything is not slowed down twice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steady_counts: Option<bool>,
    /// W-4: what rounding leaves in several passes of one division goes round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level_remainders: Option<bool>,
    /// W-4: holes of an order are divided among those who want that order or a larger one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holes_among_rivals: Option<bool>,
    /// W-32: of nodes where equally few have to leave, the one where the least work is lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lose_least: Option<bool>,
    /// W-3: processes change places where that lets counted work in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exchange: Option<bool>,
    /// W-2: where gpus are wanted, a process goes where what stays free is of most use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pack_gpus: Option<bool>,
}

impl Switches {
    pub(super) fn is_silent(&self) -> bool {
        *self == Self::default()
    }
}
