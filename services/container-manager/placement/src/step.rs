//! What an action does next (4.2, 7.4, 7.5, 8), looked up from what stands now.

use hayward_vocabulary::{NodeName, Timestamp};

use crate::environment::{Stand, StandState, World, conflict};
use crate::model::Rules;
use crate::placement::Placement;
use crate::status::{ANY_HOST, Phase, Reason, Status};

pub fn step(mut p: Placement, rules: &Rules, world: &mut impl World) -> Placement {
    let live = world
        .processor(&p.processor_id)
        .filter(|(it, _)| it.deployment == p.deployment_id);
    if live.is_none() {
        let id = &p.processor_id;
        let message = format!(
            "process {id} is not part of the service any more: it was scaled down, deployed \
             again, or ended"
        );
        fail(&mut p, Reason::JobEnded, message, world);
        return p;
    }
    follow_grant(&mut p, world);
    match p.phase {
        Some(Phase::Running) | None => reserving(&mut p, rules, world),
        Some(Phase::StopInProgress) => stopping(&mut p, rules, world),
        Some(Phase::StopFailed) => {
            let why = predecessor(&p, world).and_then(|it| it.reason);
            let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
            let message = format!("the process has not ended in time; it is left as it is{why}");
            fail(&mut p, Reason::StopFailed, message, world);
        }
        Some(Phase::Stopped) => stopped(&mut p, rules, world),
    }
    p
}

/// Notes what was granted, and asks anew where that was lost before anything was started (7.5).
fn follow_grant(p: &mut Placement, world: &impl World) {
    let granted = grant(p, world).map(|it| it.allocation);
    match (&p.hands.reserved, granted) {
        (None, Some(allocation)) => p.hands.reserved = Some(allocation),
        (Some(lost), None) if !launched(p) && !world.has_run(lost) => {
            p.hands.requests += 1;
            p.hands.asked_at = world.now();
            p.hands.reserved = None;
            p.response_message = "the place that was held was lost; another is asked for".into();
            p.updated_at = world.now();
        }
        _ => {}
    }
}

/// A node has been told to start what was reserved.
fn launched(p: &Placement) -> bool {
    p.final_host.is_some()
}

fn grant(p: &Placement, world: &impl World) -> Option<Stand> {
    world.granted(&p.processor_id, &p.request_id())
}

pub fn predecessor(p: &Placement, world: &impl World) -> Option<Stand> {
    let id = p.hands.predecessor.as_ref()?;
    let mut stands = world.stands(&p.processor_id).into_iter();
    stands.find(|it| it.allocation == *id)
}

/// Nothing has been touched yet.
fn reserving(p: &mut Placement, rules: &Rules, world: &mut impl World) {
    let now = world.now();
    let Some(old) = predecessor(p, world) else {
        let message = "the process ended by itself; it is started in the place asked for";
        p.go_on(Phase::Stopped, message.to_owned(), now);
        return;
    };
    if let Some((host, why)) = closed_target(p, world) {
        let message = format!("{host} takes nothing new any more: {why}");
        fail(p, Reason::DestinationBlocked, message, world);
        return;
    }
    let Some(place) = grant(p, world) else {
        expire(p, rules, world);
        return;
    };
    // The checks of the launch, before a healthy process is stopped for it (8).
    if let Some(why) = unfit(p, &place, world) {
        if p.hands.host.is_some() {
            let message = format!("{why}; nothing was touched");
            fail(p, Reason::ConstraintAtLaunch, message, world);
        } else {
            try_elsewhere(p, &place, &why, world);
        }
        return;
    }
    world.stop(&old.allocation);
    p.hands.stop_at = Some(now);
    let message = format!(
        "a place is held on {}; the process was told to stop",
        place.host
    );
    p.go_on(Phase::StopInProgress, message, now);
}

fn closed_target(p: &Placement, world: &impl World) -> Option<(NodeName, String)> {
    let host = p.hands.host.as_ref()?;
    let why = world.closed(host, &p.processor_id)?;
    Some((host.clone(), why))
}

/// Why what was granted will not do.
fn unfit(p: &Placement, place: &Stand, world: &impl World) -> Option<String> {
    let (work, host) = (&p.processor_id, &place.host);
    let shared = conflict(world, work, host).map(|other| format!("{other} is on {host}"));
    shared.or_else(|| {
        let untouched = p.phase == Some(Phase::Running);
        let why = world.closed(host, work).filter(|_| untouched)?;
        Some(format!("{host} takes nothing new: {why}"))
    })
}

fn try_elsewhere(p: &mut Placement, place: &Stand, why: &str, world: &mut impl World) {
    world.release(&place.allocation);
    p.hands.exclude.push(place.host.clone());
    // The clock of the request goes on: it was served badly, not lost.
    p.hands.requests += 1;
    p.hands.reserved = None;
    p.response_message = format!("{why}; another place is asked for");
    p.updated_at = world.now();
}

fn expire(p: &mut Placement, rules: &Rules, world: &mut impl World) {
    // Strictly later (7.4).
    if world.now() > expiry(p, rules) {
        let waited = p.request_expiry_ms.unwrap_or(rules.request_timeout_ms);
        let wanted = p.resolved_host.as_deref().unwrap_or(ANY_HOST);
        let why = world.waits(&p.request_id()).map(|why| format!(": {why}"));
        let why = why.unwrap_or_default();
        let message = format!("no place on {wanted} within {waited} ms{why}");
        fail(p, Reason::RequestExpired, message, world);
    }
}

fn expiry(p: &Placement, rules: &Rules) -> Timestamp {
    let limit = p.request_expiry_ms.unwrap_or(rules.request_timeout_ms);
    p.hands.asked_at.plus_ms(limit)
}

fn stopping(p: &mut Placement, rules: &Rules, world: &mut impl World) {
    let now = world.now();
    if predecessor(p, world).is_none() {
        let message = "the process has ended; its successor is started".to_owned();
        p.go_on(Phase::Stopped, message, now);
    } else if stop_limit(p, rules).is_some_and(|limit| now > limit) {
        p.go_on(
            Phase::StopFailed,
            "the process does not end".to_owned(),
            now,
        );
    }
}

pub fn stop_limit(p: &Placement, rules: &Rules) -> Option<Timestamp> {
    p.hands.stop_at.map(|at| at.plus_ms(rules.stop_timeout_ms))
}

/// Nothing of the processor runs: the reserved place is all it has.
fn stopped(p: &mut Placement, rules: &Rules, world: &mut impl World) {
    let now = world.now();
    let place = grant(p, world);
    let came_up = p
        .hands
        .reserved
        .as_ref()
        .is_some_and(|id| world.has_run(id));
    if came_up {
        p.phase = Some(Phase::Running);
        let host = p.final_host.as_ref().map_or("", NodeName::as_str);
        let message = format!("it runs on {host}");
        p.finish(Status::Succeeded, None, message, now);
        return;
    }
    if !launched(p)
        && let Some(other) = another(p, world)
    {
        let message = format!(
            "it was started on {} beside this order; nothing is started twice",
            other.host
        );
        fail(p, Reason::ConstraintAtLaunch, message, world);
        return;
    }
    let Some(place) = place else {
        if launched(p) {
            let host = p.final_host.take();
            let host = host.as_ref().map_or("its new host", NodeName::as_str);
            let message = format!("it could not be started on {host}");
            fail(p, Reason::LaunchFailed, message, world);
        } else {
            expire(p, rules, world);
        }
        return;
    };
    if place.state != StandState::Held {
        p.final_host.get_or_insert(place.host);
        return;
    }
    if let Some(why) = unfit(p, &place, world) {
        fail(p, Reason::ConstraintAtLaunch, why, world);
        return;
    }
    world.launch(&place.allocation);
    p.response_message = format!("it is started on {}", place.host);
    p.final_host = Some(place.host);
    p.updated_at = now;
}

/// Something of the processor that this action did not start, and that is up or coming up.
fn another(p: &Placement, world: &impl World) -> Option<Stand> {
    let own = grant(p, world).map(|it| it.allocation);
    let mut stands = world.stands(&p.processor_id).into_iter();
    stands.find(|it| it.state != StandState::Held && Some(&it.allocation) != own.as_ref())
}

/// Ends an action badly. What it held is given back; a processor that is down is left to its
/// everyday restart, which stands ready once the request is withdrawn (P1).
pub fn fail(p: &mut Placement, reason: Reason, message: String, world: &mut impl World) {
    if let Some(place) = grant(p, world)
        && place.state == StandState::Held
    {
        world.release(&place.allocation);
    }
    let gone = p.hands.predecessor.is_some() && predecessor(p, world).is_none();
    let down = gone && another(p, world).is_none();
    if down && reason != Reason::JobEnded {
        let affine = world
            .processor(&p.processor_id)
            .is_some_and(|(it, _)| it.host_affinity);
        let source = p.source_host.clone().filter(|_| affine);
        let open = source.filter(|host| world.closed(host, &p.processor_id).is_none());
        p.recovery_host = Some(open.map_or(ANY_HOST.to_owned(), |host| host.to_string()));
    }
    p.final_host = None;
    p.finish(Status::Failed, Some(reason), message, world.now());
}

/// When time alone moves it next; just after, as expiry is strict.
pub fn deadline(p: &Placement, rules: &Rules) -> Option<Timestamp> {
    if p.is_parent() {
        return None;
    }
    let at = match p.phase {
        Some(Phase::StopInProgress) => stop_limit(p, rules)?,
        Some(Phase::StopFailed) => return Some(p.updated_at),
        _ if p.hands.reserved.is_some() => return None,
        _ => expiry(p, rules),
    };
    Some(at.plus_ms(1))
}
