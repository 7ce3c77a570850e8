//! A gang starts whole or not at all. If one of its grants is dropped after planning, all are
//! dropped, and the gang is planned again (I13).

use std::collections::BTreeMap;

use hayward_vocabulary::{UserName, WorkId};

use super::plan::Grant;
use crate::input::snapshot::Snapshot;

/// Most grants that are carried out in one round, because a commit must end within the lease. No
/// gang can be larger.
pub const MAX_CONCURRENT: usize = 10_000;

/// User, application and gang.
type Gang = (UserName, String, String);

/// Processes granted to each gang in a plan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Members(BTreeMap<Gang, usize>);

impl Members {
    pub fn new(snapshot: &Snapshot, grants: &[Grant]) -> Self {
        let mut members: BTreeMap<Gang, usize> = BTreeMap::new();
        let gangs = grants.iter().filter_map(|it| gang(snapshot, &it.work));
        for gang in gangs {
            *members.entry(gang).or_default() += 1;
        }
        Self(members)
    }

    /// Drops the remaining grants of gangs that lost a grant. Returns true if there were any.
    pub fn drop_torn(&self, snapshot: &Snapshot, grants: &mut Vec<Grant>) -> bool {
        let left = Self::new(snapshot, grants);
        let count = grants.len();
        let is_whole = |gang: &Gang| self.0.get(gang) == left.0.get(gang);
        grants.retain(|grant| gang(snapshot, &grant.work).is_none_or(|gang| is_whole(&gang)));
        grants.len() < count
    }
}

/// Keeps the first grants, and either all or none of a gang. Returns true if any were dropped.
/// Grants are in serve order, so the kept ones do not depend on the dropped ones.
pub fn cut(snapshot: &Snapshot, grants: &mut Vec<Grant>, most: usize) -> bool {
    if grants.len() <= most {
        return false;
    }
    let planned = Members::new(snapshot, grants);
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
