//! Decides which class serves a piece of work, or why none does.

use hayward_vocabulary::WorkKind;

use crate::{
    input::snapshot::{Class, Demand, Policy, Snapshot},
    output::{plan::Reason, reason::Deferral},
};

/// Returns the class that serves the work. `holds` is true if the work has allocations. The allow
/// list does not apply to it then, so changing the list ends no work.
pub(crate) fn class_of<'a>(
    snapshot: &'a Snapshot,
    demand: &Demand,
    holds: bool,
) -> Result<&'a str, Deferral> {
    let (name, class) = match &demand.class {
        None => default_of(snapshot, natural(snapshot, demand.kind)).ok_or_else(|| {
            refuse(
                Reason::NoClass,
                "names no class, and there is no default for its kind".into(),
            )
        })?,
        Some(name) => snapshot
            .classes
            .get_key_value(name)
            .ok_or_else(|| refuse(Reason::UnknownClass, format!("there is no class {name:?}")))?,
    };
    let (name, class) = substitute(snapshot, demand.kind, name, class)?;
    if !snapshot.pools.contains_key(&class.pool) {
        let detail = format!(
            "class {name:?} lives in pool {:?}, which does not exist",
            class.pool
        );
        return Err(refuse(Reason::UnknownClass, detail));
    }
    let allowed = class.users.is_empty() || class.users.contains(demand.user.as_str());
    if !allowed && !holds {
        let detail = format!("user {} may not use class {name:?}", demand.user);
        return Err(refuse(Reason::NotAuthorised, detail));
    }
    Ok(name)
}

/// Returns the class that serves the work, without regard to allow lists. Returns `None` if no
/// class can serve it.
#[must_use]
pub fn served_in<'a>(snapshot: &'a Snapshot, demand: &Demand) -> Option<&'a str> {
    let queued = demand.queued.is_some();
    class_of(snapshot, demand, true).ok().filter(|_| !queued)
}

/// Returns the policy for work without a class. With `reserve_whole_nodes`, whole nodes are for
/// reservations only.
fn natural(snapshot: &Snapshot, kind: WorkKind) -> Policy {
    match kind {
        WorkKind::Job => Policy::FairShare,
        WorkKind::Service if snapshot.tunables.settings.reserve_whole_nodes => Policy::FixedShare,
        WorkKind::Service | WorkKind::Reservation => Policy::Reserve,
    }
}

fn default_of(snapshot: &Snapshot, policy: Policy) -> Option<(&String, &Class)> {
    snapshot
        .classes
        .iter()
        .find(|(_, class)| class.default && class.policy == policy)
}

/// Returns the fixed default class for a service that names a class with preemption, where it
/// cannot run.
fn substitute<'a>(
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
        refuse(Reason::PolicyMismatch, detail)
    };
    match (kind, class.policy) {
        (WorkKind::Service, Policy::FairShare) => {
            let debug = class.debug.as_ref();
            let named = debug.and_then(|name| snapshot.classes.get_key_value(name));
            named
                .filter(|(_, class)| class.policy != Policy::FairShare)
                .or_else(|| default_of(snapshot, Policy::FixedShare))
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

fn refuse(reason: Reason, detail: String) -> Deferral {
    Deferral {
        reason,
        refused: true,
        detail,
    }
}
