//! May a request be looked at now (5.1), is it valid (5.2), and what it is then (5.3).

use hayward_vocabulary::{NodeName, Processor, Role, WorkId};

use crate::composite;
use crate::environment::{World, conflict, is_unlisted, is_up, partners, source, standing};
use crate::placement::{Hands, Placement};
use crate::placements::Machine;
use crate::status::{ANY_HOST, Destination, Phase, Queued, Reason, Status};

/// Looks at a request that waits: it goes on waiting, is refused, or begins.
pub fn look(machine: &mut Machine, mut p: Placement, world: &mut impl World) -> Placement {
    let processor = match known(&p, world) {
        Ok(processor) => processor,
        Err((reason, message)) => {
            p.refuse(reason, message, world.now());
            return p;
        }
    };
    let force = p.destination_host == Destination::ForceRestartLastSeen;
    let parent = p.parent_uuid.as_deref();
    let waits = in_flight(machine, &p.processor_id, parent, world).map(|(why, _)| why);
    // A forced restart needs something to end and waits for nothing to come up (5.2-6).
    let down = || !force && !processor.failed && !is_up(world, &p.processor_id);
    let waits = waits.or_else(|| down().then_some(Queued::NotRunningYet));
    if let Some(why) = waits {
        if p.queued_because != Some(why) {
            p.queued_because = Some(why);
            why_it_waits(why).clone_into(&mut p.response_message);
            p.updated_at = world.now();
        }
        return p;
    }
    match validate(machine, &p, &processor, world) {
        Err((reason, message)) => p.refuse(reason, message, world.now()),
        Ok(()) if force => force_restart(&mut p, world),
        Ok(()) if p.destination_host == Destination::Standby => {
            return composite::begin(machine, p, world);
        }
        Ok(()) => accept(&mut p, &processor, world),
    }
    p
}

fn why_it_waits(why: Queued) -> &'static str {
    match why {
        Queued::SelfInFlight => "another action of this processor is in flight",
        Queued::ActiveInFlight => "an action of the processor it stands by for is in flight",
        Queued::StandbyInFlight => "an action of one of its standbys is in flight",
        Queued::NotRunningYet => "the processor does not run yet",
    }
}

/// The action in flight that a request of this processor waits for; `parent` is its own.
pub fn in_flight(
    machine: &Machine,
    work: &WorkId,
    parent: Option<&str>,
    world: &impl World,
) -> Option<(Queued, Option<String>)> {
    let flies = |of: &WorkId| {
        let mut active = machine.active().filter(|it| it.is_in_flight());
        let found = active.find(|it| it.processor_id == *of && Some(it.uuid.as_str()) != parent);
        found.map(|it| it.uuid.clone())
    };
    if let Some(uuid) = flies(work) {
        return Some((Queued::SelfInFlight, Some(uuid)));
    }
    let (processor, _) = world.processor(work)?;
    match processor.role {
        Role::Standby { of, .. } => flies(&of).map(|uuid| (Queued::ActiveInFlight, Some(uuid))),
        // Siblings do not keep each other waiting.
        Role::Active => partners(world, work)
            .iter()
            .find_map(|(standby, _)| flies(standby))
            .map(|uuid| (Queued::StandbyInFlight, Some(uuid))),
    }
}

type Refused = (Reason, String);

/// 5.2-3, 5.2-8, 5.2-1 and the list of machines: before anything is waited for, so that nothing
/// waits for ever.
fn known(p: &Placement, world: &impl World) -> Result<Processor, Refused> {
    let work = &p.processor_id;
    if !world.is_live(&p.deployment_id) {
        let detail = format!("deployment {} is over", p.deployment_id);
        return Err((Reason::StaleDeployment, detail));
    }
    if world.is_pool_worker(work) {
        let detail = format!("{work} is a worker of a pool: its owner alone moves it");
        return Err((Reason::PoolManaged, detail));
    }
    let processor = world.processor(work).map(|(processor, _)| processor);
    let processor = processor
        .filter(|it| it.deployment == p.deployment_id)
        .ok_or_else(|| {
            let detail = format!("deployment {} has no processor {work}", p.deployment_id);
            (Reason::UnknownProcessor, detail)
        })?;
    if let Destination::Host(host) = &p.destination_host {
        listed(p, host, world)?;
    }
    Ok(processor)
}

fn validate(
    machine: &Machine,
    p: &Placement,
    processor: &Processor,
    world: &impl World,
) -> Result<(), Refused> {
    let work = &p.processor_id;
    let host = match &p.destination_host {
        Destination::Host(host) => Some(host.clone()),
        Destination::LastSeen => source(work, world),
        _ => None,
    };
    if let Some(host) = host {
        let reserved = || reserved_by_partner(machine, work, &host, world);
        if let Some(other) = conflict(world, work, &host).or_else(reserved) {
            let detail = format!("{other} is on {host} or will be, and must not share a host");
            return Err((Reason::StandbyConstraint, detail));
        }
        listed(p, &host, world)?;
        if let Some(why) = world.closed(&host, work) {
            let detail = format!("{host} takes nothing new: {why}");
            return Err((Reason::DestinationBlocked, detail));
        }
    }
    if p.destination_host == Destination::ForceRestartLastSeen && !is_up(world, work) {
        return Err((Reason::NotRunning, format!("{work} does not run")));
    }
    if p.destination_host == Destination::Standby {
        if !matches!(processor.role, Role::Active) {
            return Err((Reason::NoStandby, format!("{work} is a standby itself")));
        }
        if composite::choose(p, world).is_none() {
            let detail = format!("{work} has no standby that runs on a host open to it");
            return Err((Reason::NoStandby, detail));
        }
    }
    Ok(())
}

/// A host narrows the list of the service, and goes beyond it by force alone.
fn listed(p: &Placement, host: &NodeName, world: &impl World) -> Result<(), Refused> {
    if p.force || !is_unlisted(world, &p.processor_id, host) {
        return Ok(());
    }
    let machines = world.machines(&p.processor_id);
    let names: Vec<&str> = machines.iter().map(NodeName::as_str).collect();
    let detail = format!(
        "{host} is none of the machines of the service ({}); name one of them, or order it with \
         `force`",
        names.join(", ")
    );
    Err((Reason::NotAListedMachine, detail))
}

/// A partner whose action in flight has asked for this host.
fn reserved_by_partner(
    machine: &Machine,
    work: &WorkId,
    host: &NodeName,
    world: &impl World,
) -> Option<WorkId> {
    let partners = partners(world, work);
    let asks = |it: &&Placement| {
        let partner = partners.iter().any(|(other, _)| *other == it.processor_id);
        partner && it.hands.host.as_ref() == Some(host)
    };
    machine
        .active()
        .find(asks)
        .map(|it| it.processor_id.clone())
}

fn accept(p: &mut Placement, processor: &Processor, world: &impl World) {
    let (now, work) = (world.now(), p.processor_id.clone());
    let stand = standing(&work, world);
    let source = source(&work, world);
    // Taking over a standby's host is about that host alone, so affinity does not matter there.
    let affine = processor.host_affinity || p.hands.under_parent;
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
    p.hands = Hands {
        epoch: world.epoch(),
        predecessor: stand.map(|it| it.allocation),
        host,
        requests: 1,
        asked_at: now,
        ..std::mem::take(&mut p.hands)
    };
    let phase = match p.hands.predecessor {
        Some(_) => Phase::Running,
        // Nothing to stop: it had failed.
        None => Phase::Stopped,
    };
    let message = format!(
        "a place is asked for on {}",
        p.resolved_host.as_deref().unwrap_or("")
    );
    p.go_on(phase, message, now);
}

/// 6.7: the stop is all that is reported of it; what follows is everyday.
fn force_restart(p: &mut Placement, world: &mut impl World) {
    let now = world.now();
    let Some(stand) = standing(&p.processor_id, world) else {
        return;
    };
    world.stop(&stand.allocation);
    p.hands.predecessor = Some(stand.allocation.clone());
    p.hands.stop_at = Some(now);
    p.request_consumed_at = Some(now);
    p.phase = Some(Phase::StopInProgress);
    p.resolved_host = Some(stand.host.to_string());
    p.source_host = Some(stand.host);
    let message = "it was told to stop; the everyday restart follows".to_owned();
    p.finish(Status::Succeeded, None, message, now);
}
