//! Decides which class serves a piece of work, or why none does.

use hayward_vocabulary::WorkKind;

use crate::{
    input::snapshot::{Class, Demand, Policy, Snapshot},
    output::{plan::Reason, reason::Deferral},
};

/// Returns the class that serves the work. `holds_allocations` is true if the work has allocations.
/// Then the allow list does not apply, so that a changed list ends no work.
pub(crate) fn find_eligible_class<'a>(
    snapshot: &'a Snapshot,
    demand: &Demand,
    holds_allocations: bool,
) -> Result<&'a str, Deferral> {
    let (name, class) = match &demand.class {
        None => find_default_class(snapshot, default_policy(snapshot, demand.kind)).ok_or_else(
            || {
                refused_deferral(
                    Reason::NoClass,
                    "names no class, and there is no default for its kind".into(),
                )
            },
        )?,
        Some(name) => snapshot.classes.get_key_value(name).ok_or_else(|| {
            refused_deferral(Reason::UnknownClass, format!("there is no class {name:?}"))
        })?,
    };
    let (name, class) = substitute_class(snapshot, demand.kind, name, class)?;
    if !snapshot.pools.contains_key(&class.pool) {
        let detail = format!(
            "class {name:?} lives in pool {:?}, which does not exist",
            class.pool
        );
        return Err(refused_deferral(Reason::UnknownClass, detail));
    }
    let allowed = class.users.is_empty() || class.users.contains(demand.user.as_str());
    if !allowed && !holds_allocations {
        let detail = format!("user {} may not use class {name:?}", demand.user);
        return Err(refused_deferral(Reason::NotAuthorised, detail));
    }
    Ok(name)
}

/// Returns the class that serves the work, without regard to allow lists. Returns `None` if no
/// class can serve it.
#[must_use]
pub fn serving_class<'a>(snapshot: &'a Snapshot, demand: &Demand) -> Option<&'a str> {
    let queued = demand.queued.is_some();
    find_eligible_class(snapshot, demand, true)
        .ok()
        .filter(|_| !queued)
}

/// Returns the policy for work without a class. With `reserve_whole_nodes`, whole nodes are for
/// reservations only.
fn default_policy(snapshot: &Snapshot, kind: WorkKind) -> Policy {
    match kind {
        WorkKind::Job => Policy::FairShare,
        WorkKind::Service if snapshot.tunables.settings.reserve_whole_nodes => Policy::FixedShare,
        WorkKind::Service | WorkKind::Reservation => Policy::Reserve,
    }
}

fn find_default_class(snapshot: &Snapshot, policy: Policy) -> Option<(&String, &Class)> {
    snapshot
        .classes
        .iter()
        .find(|(_, class)| class.default && class.policy == policy)
}

/// Returns the class that serves work of this kind. A service that names a FAIR_SHARE class gets
/// the debug class of that class, or else the default FIXED_SHARE class.
fn substitute_class<'a>(
    snapshot: &'a Snapshot,
    kind: WorkKind,
    name: &'a String,
    class: &'a Class,
) -> Result<(&'a String, &'a Class), Deferral> {
    let mismatch = |kind: &str| {
        let detail = format!(
            "a {kind} cannot be served in {:?} class {name:?}",
            class.policy
        );
        refused_deferral(Reason::PolicyMismatch, detail)
    };
    match (kind, class.policy) {
        (WorkKind::Service, Policy::FairShare) => {
            let debug = class.debug_class.as_ref();
            let debug_class = debug.and_then(|name| snapshot.classes.get_key_value(name));
            debug_class
                .filter(|(_, class)| class.policy != Policy::FairShare)
                .or_else(|| find_default_class(snapshot, Policy::FixedShare))
                .ok_or_else(|| mismatch("service"))
        }
        (WorkKind::Reservation, Policy::FairShare) => Err(mismatch("reservation")),
        (WorkKind::Reservation, Policy::FixedShare)
            if snapshot.tunables.settings.reserve_whole_nodes =>
        {
            Err(mismatch("reservation"))
        }
        _ => Ok((name, class)),
    }
}

fn refused_deferral(reason: Reason, detail: String) -> Deferral {
    Deferral {
        reason,
        refused: true,
        detail,
    }
}
