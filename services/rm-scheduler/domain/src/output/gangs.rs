//! A gang starts whole or not at all (I13), also where something of a plan is dropped after it was
//! made: what the committer refuses, what a node on trial does not take, what one commit is too
//! short for. Then all grants of that gang are dropped, and planned anew.

use std::collections::BTreeMap;

use hayward_vocabulary::{UserName, WorkId};

use super::plan::Grant;
use crate::input::snapshot::Snapshot;

/// Grants one round carries out at most: a commit has to end well within the lease. No gang can be
/// larger.
pub const MOST_AT_ONCE: usize = 10_000;

/// Whose application, which one, and which gang of it.
type Gang = (UserName, String, String);

/// How many processes a plan grants to each gang.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Members(BTreeMap<Gang, usize>);

impl Members {
    pub fn of(snapshot: &Snapshot, grants: &[Grant]) -> Self {
        let mut members: BTreeMap<Gang, usize> = BTreeMap::new();
        let gangs = grants.iter().filter_map(|it| gang(snapshot, &it.work));
        for gang in gangs {
            *members.entry(gang).or_default() += 1;
        }
        Self(members)
    }

    /// Drops what is left of gangs that have lost a process since; says whether there were any.
    pub fn drop_torn(&self, snapshot: &Snapshot, grants: &mut Vec<Grant>) -> bool {
        let left = Self::of(snapshot, grants);
        let count = grants.len();
        let is_whole = |gang: &Gang| self.0.get(gang) == left.0.get(gang);
        grants.retain(|grant| gang(snapshot, &grant.work).is_none_or(|gang| is_whole(&gang)));
        grants.len() < count
    }
}

/// The first of them, and of gangs all or none; says whether any were dropped. Grants are in order
/// of turn, so the first of them stand without the others.
pub fn cut(snapshot: &Snapshot, grants: &mut Vec<Grant>, most: usize) -> bool {
    if grants.len() <= most {
        return false;
    }
    let planned = Members::of(snapshot, grants);
    grants.truncate(most);
    planned.drop_torn(snapshot, grants);
    true
}

fn gang(snapshot: &Snapshot, work: &WorkId) -> Option<Gang> {
    let demand = snapshot.demand.get(work)?;
    let queued = demand.queued.as_deref()?;
    let gang = queued.gang.as_ref().filter(|gang| gang.min > 0)?;
    let gang = gang.name.clone();
    let application = queued.application.clone();
    let application = application.unwrap_or_else(|| work.to_string());
    Some((demand.user.clone(), application, gang))
}
