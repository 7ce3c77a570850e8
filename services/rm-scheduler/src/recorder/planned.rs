//! A plan as what differs from the one kept before. Grants and vacates are new each time; verdicts
//! and shares are said of all work in each plan, and most of them stay as they were.

use std::collections::BTreeMap;

use hayward_rm_scheduler_domain::plan::{ClassShare, Shares, UserShare, WorkShare};
use hayward_rm_scheduler_domain::{Plan, Verdict};
use hayward_vocabulary::{UserName, WorkId};
use serde::{Deserialize, Serialize};

use crate::tracked::put;

type Works = BTreeMap<WorkId, WorkShare>;
type WorksNews = BTreeMap<WorkId, Option<WorkShare>>;

#[derive(Serialize, Deserialize)]
pub struct Planned {
    /// The plan itself without what is told by difference.
    rest: Plan,
    verdicts: BTreeMap<WorkId, Option<Verdict>>,
    /// By class, then user.
    shares: BTreeMap<String, BTreeMap<UserName, WorksNews>>,
}

impl Planned {
    pub fn between(before: &Plan, now: &Plan) -> Self {
        let rest = Plan {
            round: now.round,
            at: now.at,
            grants: now.grants.clone(),
            vacates: now.vacates.clone(),
            verdicts: BTreeMap::new(),
            shares: without_work(&now.shares),
            receipts: now.receipts.clone(),
            carried: now.carried.clone(),
            outside: now.outside.clone(),
        };
        let mut shares: BTreeMap<String, BTreeMap<UserName, WorksNews>> = BTreeMap::new();
        for (class, share) in &now.shares.classes {
            for (user, share) in &share.users {
                let known = works(before, class, user);
                let news = differing(known.unwrap_or(&Works::new()), &share.work);
                if !news.is_empty() {
                    let users = shares.entry(class.clone()).or_default();
                    users.insert(user.clone(), news);
                }
            }
        }
        Self {
            rest,
            verdicts: differing(&before.verdicts, &now.verdicts),
            shares,
        }
    }

    pub fn apply(self, plan: &mut Plan) {
        let before = std::mem::replace(plan, self.rest);
        plan.verdicts = before.verdicts;
        put(&mut plan.verdicts, self.verdicts);
        let (mut known, mut news) = (before.shares.classes, self.shares);
        for (class, share) in &mut plan.shares.classes {
            let known = known.remove(class).map(|class| class.users);
            let mut known = known.unwrap_or_default();
            let mut news = news.remove(class).unwrap_or_default();
            for (user, share) in &mut share.users {
                share.work = known.remove(user).unwrap_or_default().work;
                put(&mut share.work, news.remove(user).unwrap_or_default());
            }
        }
    }
}

fn works<'a>(plan: &'a Plan, class: &str, user: &UserName) -> Option<&'a Works> {
    let class = plan.shares.classes.get(class)?;
    class.users.get(user).map(|share| &share.work)
}

fn without_work(shares: &Shares) -> Shares {
    let user = |(name, share): (&UserName, &UserShare)| {
        let bare = UserShare {
            given: share.given,
            left: share.left,
            tally: share.tally,
            work: Works::new(),
        };
        (name.clone(), bare)
    };
    let class = |(name, share): (&String, &ClassShare)| {
        let bare = ClassShare {
            tree: share.tree.clone(),
            policy: share.policy,
            priority: share.priority,
            weight: share.weight,
            given: share.given,
            left: share.left,
            tally: share.tally,
            users: share.users.iter().map(user).collect(),
        };
        (name.clone(), bare)
    };
    Shares {
        capacity: shares.capacity,
        held: shares.held,
        free: shares.free,
        pools: shares.pools.clone(),
        elsewhere: shares.elsewhere,
        priorities: shares.priorities.clone(),
        classes: shares.classes.iter().map(class).collect(),
        unclassed: shares.unclassed,
    }
}

/// Entries of `now` that are not in `before`, and `None` for those that are gone. Both are walked
/// once, side by side.
fn differing<K: Ord + Clone, V: PartialEq + Clone>(
    before: &BTreeMap<K, V>,
    now: &BTreeMap<K, V>,
) -> BTreeMap<K, Option<V>> {
    let mut news = BTreeMap::new();
    let mut known = before.iter().peekable();
    for (key, value) in now {
        while let Some((gone, _)) = known.next_if(|(it, _)| *it < key) {
            news.insert(gone.clone(), None);
        }
        let same = known.next_if(|(it, _)| *it == key);
        if same.is_none_or(|(_, it)| it != value) {
            news.insert(key.clone(), Some(value.clone()));
        }
    }
    news.extend(known.map(|(gone, _)| (gone.clone(), None)));
    news
}
