//! What the planner does beyond the rules. Each setting beats one weakness that section 18 names;
//! with all of them off the rules stand alone, corrected by C-1 to C-17 and by nothing else.

use serde::{Deserialize, Serialize};

#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one decision that can be taken back on its own"
)]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// W-4, W-5, W-6: what rounding kept from a class or user is owed, and paid in later rounds.
    pub carry_remainders: bool,
    /// W-13: processes in a pool below their own go first, and go home when there is room.
    pub squatters_go_home: bool,
    /// W-14: space that is leaving counts when room is mended, so nothing is cleared twice.
    pub count_leaving_room: bool,
    /// W-21: mending never takes a donor below the threshold.
    pub spare_donors: bool,
    /// W-1, W-12: nothing is counted that no node it may use could hold; machine lists and every
    /// dimension included.
    pub count_what_fits: bool,
    /// W-2, W-3: large processes are placed first where that leaves nobody without a place.
    pub pack: bool,
    /// W-32: rounds that pass before mending takes from the same work again; absent means none.
    pub churn_rounds: Option<u64>,
    /// B5: what may be taken back in an hour from a pool, in percent of all it has; absent means
    /// any amount. See decision 0017.
    pub preemption_pool_percent_per_hour: Option<u64>,
    /// B5: what may be taken back in an hour from one user, in percent of all that the tree has;
    /// absent means any amount.
    pub preemption_user_percent_per_hour: Option<u64>,
    /// Overage is taken back only where that lets waiting work in; see decision 0006.
    pub evict_for_somebody: bool,
    /// Room that no count claims is lent out; see decision 0006.
    pub lend_idle: bool,
    /// W-33: a node promised to a reservation is kept for it, and cleared at once.
    pub clear_promised: bool,
    /// W-20: a node that shrank below its load is relieved first.
    pub relieve_shrunken: bool,
    /// Work other than jobs gets a successor after its node was lost. The original ends it, and
    /// waits for its owner to ask again.
    pub replace_lost: bool,
    /// Processes on nodes that take no new work stay out of the counts. Otherwise marking a node
    /// would drive out what a mark must leave alone.
    pub rest_on_closed: bool,
    /// Reservations are whole nodes, and whole nodes are for reservations: only RESERVE classes
    /// serve them, and a service that names no class gets a share of a node. The rules also let
    /// a FIXED_SHARE class serve a reservation, and give a service without class a whole node
    ///
    pub reserve_whole_nodes: bool,
    /// Growth that costs nobody anything is not slowed down twice: counts are made as if growth
    /// were free, and only work that exceeds its cap is held to it.
    pub steady_counts: bool,
    /// W-4: what rounding leaves in several passes of one division goes round, instead of to the
    /// same one each time.
    pub level_remainders: bool,
    /// W-4: holes of an order are divided among those who want that order or a larger one.
    /// Otherwise who wants large processes gets a part of the few holes for them, as if everybody
    /// wanted those, and stays below its due. For the same reason the users of a class without
    /// rivals divide the holes there are, and not those that the class was counted for. It counts
    /// X7 as 5 and 10 where section 17 has 6 and 8, so no preset has it.
    pub holes_among_rivals: bool,
    /// W-32: of the nodes where equally few have to leave, the one where the least work is lost.
    pub lose_least: bool,
    /// W-3: where counted work finds no room though nobody has more than the due, processes change
    /// places until the free pieces come together. What they leave behind is kept for them by
    /// `count_leaving_room`, without which nothing is exchanged. It costs the work in flight of
    /// those that move, so no preset has it.
    pub exchange: bool,
    /// W-2: where gpus are wanted, a process goes to the node where what stays free is of most use
    /// to the demand at hand. Otherwise into the smallest hole of quanta, whatever gpus that
    /// strands.
    pub pack_gpus: bool,
}

impl Settings {
    pub(crate) fn division(&self) -> DivisionSettings {
        DivisionSettings {
            spread_remainders: self.level_remainders,
            holes_among_rivals: self.holes_among_rivals,
        }
    }

    /// The rules with C-1 to C-17, and nothing else.
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

/// What a division does beyond R-9.1 (W-4).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DivisionSettings {
    /// Nobody is handed a second quantum that rounding left before all others had one. Otherwise
    /// the first of the sort can gain one in each pass, and the last none.
    pub spread_remainders: bool,
    /// Holes of an order are divided among those who want that order or a larger one.
    pub holes_among_rivals: bool,
}
