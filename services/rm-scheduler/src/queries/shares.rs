//! Converts the shares of a round to the response of `GET /v1/shares`, field by field.

use std::collections::BTreeSet;

use hayward_rm_scheduler_api::policy::SharePolicy;
use hayward_rm_scheduler_api::shares::{
    CapParts, ClassShare, Idle, PoolShare, PriorityShare, Shares, Tally, Turn, UserShare, WorkShare,
};
use hayward_rm_scheduler_domain::{plan, snapshot};
use hayward_vocabulary::{UserName, WorkId};

use crate::context::shared_view::NewestRound;

/// Pools that are not planned by shares. The response lists such a pool only while the shares count
/// quanta in it, for example of work that a class started before.
#[derive(Default)]
pub struct PoolsWithoutShares {
    pub with_queues: BTreeSet<String>,
    pub with_external_planner: BTreeSet<String>,
}

pub fn to_response(newest: &NewestRound, other_pools: PoolsWithoutShares) -> Shares {
    let PoolsWithoutShares {
        with_queues,
        with_external_planner,
    } = other_pools;
    let shares = &newest.shares;
    let is_listed = |(name, pool): &(&String, &plan::PoolShare)| {
        let without_shares = with_queues.contains(*name) || with_external_planner.contains(*name);
        pool.total > 0 || pool.held > 0 || !without_shares
    };
    let listed = shares.pools.iter().filter(is_listed);
    // Pools with queues have no budget. Delays and rules of their own limit preemption.
    let mut budgets = newest.budgets.clone();
    budgets.pools.retain(|it| !with_queues.contains(&it.pool));
    budgets.users.retain(|it| !with_queues.contains(&it.tree));
    Shares {
        round: newest.round,
        at: newest.at,
        capacity: shares.capacity,
        held: shares.held,
        free: shares.free,
        pools: listed
            .map(|(name, share)| to_pool_share(name, share))
            .collect(),
        elsewhere: shares.outside_pools,
        priorities: shares.priorities.iter().map(to_priority_share).collect(),
        classes: shares
            .classes
            .iter()
            .map(|(name, share)| to_class_share(name, share))
            .collect(),
        unclassed: to_tally(&shares.unclassed),
        ledger: newest.ledger.clone(),
        ledger_of_others: Vec::new(),
        budgets,
        divided: with_queues.into_iter().collect(),
        outside: with_external_planner.into_iter().collect(),
    }
}

pub fn share_policy(policy: snapshot::Policy) -> SharePolicy {
    match policy {
        snapshot::Policy::FairShare => SharePolicy::FairShare,
        snapshot::Policy::FixedShare => SharePolicy::FixedShare,
        snapshot::Policy::Reserve => SharePolicy::Reserve,
    }
}

fn to_tally(tally: &plan::Tally) -> Tally {
    Tally {
        due: tally.due,
        divided: tally.divided,
        resting: tally.resting,
        lent: tally.lent,
        held: tally.held,
        staying: tally.staying,
        granted: tally.granted,
        vacating: tally.vacating,
        closed: tally.closed,
    }
}

fn to_pool_share(name: &str, pool: &plan::PoolShare) -> PoolShare {
    PoolShare {
        pool: name.to_owned(),
        tree: pool.tree.clone(),
        total: pool.total,
        lost: pool.lost,
        offline: pool.offline,
        blocked: pool.blocked,
        declined: pool.declined,
        withheld: pool.withheld,
        usable: pool.usable,
        held: pool.held,
        fixed: pool.fixed,
        over: pool.over,
        held_closed: pool.held_closed,
        free: pool.free,
        idle: Idle {
            meant: pool.idle.reserved,
            kept: pool.idle.forbidden,
            split: pool.idle.split,
            capped: pool.idle.capped,
            unasked: pool.idle.no_demand,
        },
    }
}

fn to_priority_share(group: &plan::PriorityShare) -> PriorityShare {
    let turn = |turn: plan::GroupQuanta| Turn {
        available: turn.available,
        taken: turn.assigned,
    };
    PriorityShare {
        tree: group.tree.clone(),
        priority: group.priority,
        policy: share_policy(group.policy),
        classes: group.classes.clone(),
        turn: group.group_quanta.map(turn),
        tally: to_tally(&group.tally),
    }
}

fn to_class_share(name: &str, class: &plan::ClassShare) -> ClassShare {
    ClassShare {
        class: name.to_owned(),
        tree: class.tree.clone(),
        policy: share_policy(class.policy),
        priority: class.priority,
        weight: class.weight,
        given: class.assigned,
        left: class.unused,
        tally: to_tally(&class.tally),
        users: class
            .users
            .iter()
            .map(|(name, share)| to_user_share(name, share))
            .collect(),
        others: None,
    }
}

fn to_user_share(name: &UserName, user: &plan::UserShare) -> UserShare {
    UserShare {
        user: name.clone(),
        given: user.assigned,
        left: user.unused,
        tally: to_tally(&user.tally),
        work: user
            .work
            .iter()
            .map(|(id, share)| to_work_share(id, share))
            .collect(),
    }
}

fn to_work_share(id: &WorkId, work: &plan::WorkShare) -> WorkShare {
    WorkShare {
        work: id.clone(),
        kind: work.kind,
        order: work.quanta,
        wanted: work.wanted,
        cap: CapParts {
            base: work.cap.base,
            initialization: work.cap.initialization,
            doubling: work.cap.doubling,
            prediction: work.cap.prediction,
            room: work.cap.reach,
        },
        counted: work.counted,
        current: work.current,
        leaving: work.leaving,
        tally: to_tally(&work.tally),
    }
}
