//! Settings that improve the planner beyond the rules of the specification. Each setting removes
//! one weakness of the rules. With all settings off, only the rules and their corrections apply.

use serde::{Deserialize, Serialize};

/// Settings of the planner, as the policy sets them.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each can be switched off independently"
)]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// A class or user gets back in later rounds what rounding withheld (W-4).
    pub carry_remainders: bool,
    /// Processes outside their home pool are preempted first, and they return when there is space
    /// (W-13).
    pub squatters_go_home: bool,
    /// Defragmentation counts the space of leaving processes as free, so that no space is cleared
    /// twice (W-14).
    pub count_leaving_room: bool,
    /// Defragmentation leaves each donor at least `fragmentation_threshold` processes (W-21).
    pub spare_donors: bool,
    /// Entitlement counts only processes that fit on a usable node. Node lists and all dimensions
    /// are considered (W-1).
    pub count_what_fits: bool,
    /// Large processes are placed first if less work waits then (W-2).
    pub pack: bool,
    /// Number of rounds before defragmentation takes from the same work again. `None` disables this
    /// protection (W-32).
    pub churn_rounds: Option<u64>,
    /// Quanta that may be preempted from a pool in an hour, in percent of all its quanta. `None`
    /// allows any. See decision 0017 (B5).
    pub preemption_pool_percent_per_hour: Option<u64>,
    /// Quanta that may be preempted from one user in an hour, in percent of all quanta of the tree.
    /// `None` allows any (B5).
    pub preemption_user_percent_per_hour: Option<u64>,
    /// Excess allocations are preempted only if waiting work gets their space. See decision 0006.
    pub evict_for_somebody: bool,
    /// Space beyond all entitlements is lent. See decision 0006.
    pub lend_idle: bool,
    /// The limits of growth (initialization cap and doubling) do not apply to lent space. Rounds
    /// that were recorded before this setting existed are replayed without it (TC-10).
    #[serde(default)]
    pub grow_into_free_space: bool,
    /// A node reserved as a whole stays reserved for its work and is cleared at once (W-33).
    pub clear_promised: bool,
    /// If a node shrank below what it holds, processes on this node are preempted first (W-20).
    pub relieve_shrunken: bool,
    /// Work other than jobs gets a successor after its node was lost. Without it, such work ends,
    /// and its owner must submit it again.
    pub replace_lost: bool,
    /// Processes on closed nodes stay out of the entitlement. Without the setting, a mark on a node
    /// would preempt the processes there, although marked nodes keep their processes.
    pub rest_on_closed: bool,
    /// Only RESERVE classes serve reservations, with whole nodes. A service without a class gets a
    /// part of a node. Without the setting, FIXED_SHARE classes may serve reservations too.
    pub reserve_whole_nodes: bool,
    /// Entitlements ignore limits of growth. The cap limits only work that exceeds the cap.
    pub steady_counts: bool,
    /// Each pass of the division gives its remainders to other entities than the last pass (W-4).
    pub level_remainders: bool,
    /// Holes of one size are divided among entities that want that size or a larger one. Without
    /// it, entities with large processes stay below their share. No profile enables it, because it
    /// changes a worked example of the rules (W-4).
    pub holes_among_rivals: bool,
    /// If equally few processes must leave several nodes, the node that loses the least work is
    /// cleared (W-32).
    pub lose_least: bool,
    /// Processes swap nodes, so that free space is joined for entitled work without space. No
    /// profile enables it, because swaps cost work in flight. Requires `count_leaving_room` (W-3).
    pub exchange: bool,
    /// A process with GPUs goes to the node where the remaining free space suits current demand
    /// best. Without it, the process goes to the smallest hole in quanta (W-2).
    pub pack_gpus: bool,
}

impl Settings {
    pub(crate) fn division(&self) -> DivisionSettings {
        DivisionSettings {
            spread_remainders: self.level_remainders,
            holes_among_rivals: self.holes_among_rivals,
        }
    }

    /// Returns the rules and their corrections, without any setting.
    pub fn reference() -> Self {
        Self {
            carry_remainders: false,
            squatters_go_home: false,
            count_leaving_room: false,
            spare_donors: false,
            count_what_fits: false,
            pack: false,
            churn_rounds: None,
            preemption_pool_percent_per_hour: None,
            preemption_user_percent_per_hour: None,
            evict_for_somebody: false,
            lend_idle: false,
            grow_into_free_space: false,
            clear_promised: false,
            relieve_shrunken: false,
            replace_lost: false,
            rest_on_closed: false,
            reserve_whole_nodes: false,
            steady_counts: false,
            level_remainders: false,
            holes_among_rivals: false,
            lose_least: false,
            exchange: false,
            pack_gpus: false,
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            carry_remainders: true,
            squatters_go_home: true,
            count_leaving_room: true,
            spare_donors: true,
            count_what_fits: true,
            pack: true,
            churn_rounds: Some(3),
            preemption_pool_percent_per_hour: Some(400),
            preemption_user_percent_per_hour: Some(200),
            evict_for_somebody: true,
            lend_idle: true,
            grow_into_free_space: true,
            clear_promised: true,
            relieve_shrunken: true,
            replace_lost: true,
            rest_on_closed: true,
            reserve_whole_nodes: true,
            steady_counts: true,
            level_remainders: true,
            holes_among_rivals: false,
            lose_least: true,
            exchange: false,
            pack_gpus: true,
        }
    }
}

/// Settings for the division of quanta among classes, users and work (W-4). An entity is one of
/// them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DivisionSettings {
    /// An entity gets a second remainder quantum only after all others had one.
    pub spread_remainders: bool,
    /// Holes of one size are divided among entities that want that size or a larger one.
    pub holes_among_rivals: bool,
}
