//! Admission of a queued request: whether it may start, whether it is valid, and its first step.

use hayward_vocabulary::{NodeName, Processor, Role, WorkId};

use crate::composite;
use crate::environment::{
    Environment, conflict, current_container, is_unlisted, is_up, last_known_host, partners,
};
use crate::placement::{Placement, Progress};
use crate::placements::Placements;
use crate::status::{ANY_HOST, Destination, Phase, QueueReason, Reason, Status};

/// The request stays queued, is refused, or starts.
pub fn admit(
    placements: &mut Placements,
    mut p: Placement,
    env: &mut impl Environment,
) -> Placement {
    let processor = match check_known(&p, env) {
        Ok(processor) => processor,
        Err((reason, message)) => {
            p.refuse(reason, message, env.now());
            return p;
        }
    };
    let force = p.destination_host == Destination::ForceRestartLastSeen;
    let parent = p.parent_uuid.as_deref();
    let waits = blocking_action(placements, &p.processor_id, parent, env).map(|(why, _)| why);
    // A forced restart needs a running process and does not wait for one to start.
    let down = || !force && !processor.failed && !is_up(env, &p.processor_id);
    let waits = waits.or_else(|| down().then_some(QueueReason::NotRunningYet));
    if let Some(why) = waits {
        if p.queued_because != Some(why) {
            p.queued_because = Some(why);
            queue_message(why).clone_into(&mut p.response_message);
            p.updated_at = env.now();
        }
        return p;
    }
    match validate(placements, &p, &processor, env) {
        Err((reason, message)) => p.refuse(reason, message, env.now()),
        Ok(()) if force => force_restart(&mut p, env),
        Ok(()) if p.destination_host == Destination::Standby => {
            return composite::begin(placements, p, env);
        }
        Ok(()) => accept(&mut p, &processor, env),
    }
    p
}

fn queue_message(why: QueueReason) -> &'static str {
    match why {
        QueueReason::SelfInFlight => "another action of this processor is in flight",
        QueueReason::ActiveInFlight => "an action of its active processor is in flight",
        QueueReason::StandbyInFlight => "an action of one of its standbys is in flight",
        QueueReason::NotRunningYet => "the processor is not running yet",
    }
}

/// The action in flight that a request of this processor waits for. `parent` is its own parent
/// action, which does not block it.
pub fn blocking_action(
    placements: &Placements,
    work: &WorkId,
    parent: Option<&str>,
    env: &impl Environment,
) -> Option<(QueueReason, Option<String>)> {
    let action_of = |processor: &WorkId| {
        let mut active = placements.active().filter(|it| it.is_in_flight());
        let is_parent = |uuid: &str| Some(uuid) == parent;
        let found = active.find(|it| it.processor_id == *processor && !is_parent(&it.uuid));
        found.map(|it| it.uuid.clone())
    };
    if let Some(uuid) = action_of(work) {
        return Some((QueueReason::SelfInFlight, Some(uuid)));
    }
    let (processor, _) = env.processor(work)?;
    match processor.role {
        Role::Standby { of, .. } => {
            action_of(&of).map(|uuid| (QueueReason::ActiveInFlight, Some(uuid)))
        }
        // Standbys of the same active do not block each other.
        Role::Active => partners(env, work)
            .iter()
            .find_map(|(standby, _)| action_of(standby))
            .map(|uuid| (QueueReason::StandbyInFlight, Some(uuid))),
    }
}

type Refused = (Reason, String);

/// Checks that must hold before a request may queue, so that none queues forever.
fn check_known(p: &Placement, env: &impl Environment) -> Result<Processor, Refused> {
    let work = &p.processor_id;
    if !env.is_live(&p.deployment_id) {
        let detail = format!("deployment {} has ended", p.deployment_id);
        return Err((Reason::StaleDeployment, detail));
    }
    if env.is_pool_worker(work) {
        let detail =
            format!("{work} is a worker of a pool; only the owner of the pool may move it");
        return Err((Reason::PoolManaged, detail));
    }
    let processor = env.processor(work).map(|(processor, _)| processor);
    let processor = processor
        .filter(|it| it.deployment == p.deployment_id)
        .ok_or_else(|| {
            let detail = format!("deployment {} has no processor {work}", p.deployment_id);
            (Reason::UnknownProcessor, detail)
        })?;
    if let Destination::Host(host) = &p.destination_host {
        check_listed(p, host, env)?;
    }
    Ok(processor)
}

fn validate(
    placements: &Placements,
    p: &Placement,
    processor: &Processor,
    env: &impl Environment,
) -> Result<(), Refused> {
    let work = &p.processor_id;
    let host = match &p.destination_host {
        Destination::Host(host) => Some(host.clone()),
        Destination::LastSeen => last_known_host(work, env),
        _ => None,
    };
    if let Some(host) = host {
        let reserved = || reserved_by_partner(placements, work, &host, env);
        if let Some(other) = conflict(env, work, &host).or_else(reserved) {
            let detail =
                format!("{other} is or will be on {host}, and the two must not share a host");
            return Err((Reason::StandbyConstraint, detail));
        }
        check_listed(p, &host, env)?;
        if let Some(why) = env.closed_reason(&host, work) {
            let detail = format!("{host} accepts no new processes: {why}");
            return Err((Reason::DestinationBlocked, detail));
        }
    }
    if p.destination_host == Destination::ForceRestartLastSeen && !is_up(env, work) {
        return Err((Reason::NotRunning, format!("{work} is not running")));
    }
    if p.destination_host == Destination::Standby {
        if !matches!(processor.role, Role::Active) {
            return Err((Reason::NoStandby, format!("{work} is itself a standby")));
        }
        if composite::choose_standby(p, env).is_none() {
            let detail = format!("{work} has no running standby on a host that accepts it");
            return Err((Reason::NoStandby, detail));
        }
    }
    Ok(())
}

/// Refuses a host that the service does not list, unless `force` is set.
fn check_listed(p: &Placement, host: &NodeName, env: &impl Environment) -> Result<(), Refused> {
    if p.force || !is_unlisted(env, &p.processor_id, host) {
        return Ok(());
    }
    let machines = env.listed_hosts(&p.processor_id);
    let names: Vec<&str> = machines.iter().map(NodeName::as_str).collect();
    let detail = format!(
        "{host} is not in the `machines` of the service ({}); name one of them, or set `force`",
        names.join(", ")
    );
    Err((Reason::NotAListedMachine, detail))
}

/// A partner with an action in flight to this host.
fn reserved_by_partner(
    placements: &Placements,
    work: &WorkId,
    host: &NodeName,
    env: &impl Environment,
) -> Option<WorkId> {
    let partners = partners(env, work);
    let asks = |it: &&Placement| {
        let partner = partners.iter().any(|(other, _)| *other == it.processor_id);
        partner && it.progress.host.as_ref() == Some(host)
    };
    placements
        .active()
        .find(asks)
        .map(|it| it.processor_id.clone())
}

fn accept(p: &mut Placement, processor: &Processor, env: &impl Environment) {
    let (now, work) = (env.now(), p.processor_id.clone());
    let container = current_container(&work, env);
    let source = last_known_host(&work, env);
    // A takeover of a standby's host needs exactly that host, whatever the affinity.
    let affine = processor.host_affinity || p.progress.under_parent;
    let host = match &p.destination_host {
        Destination::Host(host) => Some(host.clone()),
        Destination::LastSeen => source.clone(),
        _ => None,
    };
    let host = host.filter(|_| affine);
    p.resolved_host = Some(host.as_ref().map_or(ANY_HOST, NodeName::as_str).to_owned());
    p.source_host = source;
    p.request_consumed_at = Some(now);
    p.queued_because = None;
    p.status_code = Status::Accepted;
    p.progress = Progress {
        epoch: env.epoch(),
        predecessor: container.map(|it| it.allocation),
        host,
        requests: 1,
        asked_at: now,
        ..std::mem::take(&mut p.progress)
    };
    let phase = match p.progress.predecessor {
        Some(_) => Phase::Running,
        // The process has failed: there is nothing to stop.
        None => Phase::Stopped,
    };
    let message = format!(
        "a place is requested on {}",
        p.resolved_host.as_deref().unwrap_or("")
    );
    p.set_phase(phase, message, now);
}

/// Succeeds as soon as the stop is ordered; the demand of the process restarts it.
fn force_restart(p: &mut Placement, env: &mut impl Environment) {
    let now = env.now();
    let Some(container) = current_container(&p.processor_id, env) else {
        return;
    };
    env.stop(&container.allocation);
    p.progress.predecessor = Some(container.allocation.clone());
    p.progress.stop_at = Some(now);
    p.request_consumed_at = Some(now);
    p.phase = Some(Phase::StopInProgress);
    p.resolved_host = Some(container.host.to_string());
    p.source_host = Some(container.host);
    let message = "the process was ordered to stop; its restart follows".to_owned();
    p.finish(Status::Succeeded, None, message, now);
}
