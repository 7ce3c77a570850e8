//! `STANDBY`: an active takes over the host of one of its standbys (6.5). Two actions, one after
//! the other, under a parent that holds the active's place in flight from beginning to end.

use hayward_vocabulary::{NodeName, Role, WorkId};

use crate::environment::{StandState, World, is_unlisted, partners, source, standing};
use crate::placement::{Hands, Placement};
use crate::placements::Machine;
use crate::status::{Destination, Phase, Queued, Reason, Status};

/// The standby that gives up its host: one that runs, the lowest number first, and its host open.
pub fn choose(p: &Placement, world: &impl World) -> Option<(WorkId, NodeName)> {
    let active = &p.processor_id;
    let open = |host: &NodeName| {
        let listed = p.force || !is_unlisted(world, active, host);
        listed && world.closed(host, active).is_none()
    };
    let mut standbys: Vec<(u32, WorkId)> = partners(world, active)
        .into_iter()
        .filter_map(|(work, role)| match role {
            Role::Standby { replica, .. } => Some((replica, work)),
            Role::Active => None,
        })
        .collect();
    standbys.sort();
    standbys.into_iter().find_map(|(_, work)| {
        let stand = standing(&work, world)?;
        let good = stand.state == StandState::Running && open(&stand.host);
        good.then_some((work, stand.host))
    })
}

pub fn begin(machine: &mut Machine, mut p: Placement, world: &impl World) -> Placement {
    let Some((standby, host)) = choose(&p, world) else {
        return p;
    };
    let now = world.now();
    let group = partners(world, &p.processor_id)
        .into_iter()
        .map(|(work, _)| work);
    let group = group.chain([p.processor_id.clone()]);
    let exclude = group.filter_map(|work| source(&work, world)).collect();
    let first = Hands {
        exclude,
        ..Hands::default()
    };
    p.source_host = source(&p.processor_id, world);
    p.resolved_host = Some(host.to_string());
    p.request_consumed_at = Some(now);
    p.queued_because = None;
    p.hands.epoch = world.epoch();
    p.hands.standby = Some((standby.clone(), host));
    p.go_on(
        Phase::Running,
        format!("{standby} is moved away first"),
        now,
    );
    let child = child(machine, &p, (1, standby, Destination::AnyHost), first);
    machine.put(p.clone());
    machine.put(child);
    p
}

fn child(
    machine: &mut Machine,
    parent: &Placement,
    (number, work, destination): (u8, WorkId, Destination),
    hands: Hands,
) -> Placement {
    Placement {
        uuid: child_id(parent, number),
        processor_id: work,
        destination_host: destination,
        seq: machine.number(),
        status_code: Status::Created,
        response_message: "it waits to be looked at".to_owned(),
        reason_code: None,
        queued_because: None::<Queued>,
        phase: None,
        resolved_host: None,
        source_host: None,
        final_host: None,
        recovery_host: None,
        parent_uuid: Some(parent.uuid.clone()),
        request_consumed_at: None,
        hands,
        ..parent.clone()
    }
}

/// Clients name their requests with uuids, so nobody can have taken it.
fn child_id(parent: &Placement, number: u8) -> String {
    format!("{}.{number}", parent.uuid)
}

/// The parent says what its running child says.
pub fn step(machine: &mut Machine, mut p: Placement, world: &impl World) -> Placement {
    let now = world.now();
    let first = machine.get(&child_id(&p, 1)).cloned();
    let second = machine.get(&child_id(&p, 2)).cloned();
    let (Some(first), Some((standby, host))) = (first, p.hands.standby.clone()) else {
        p.finish(
            Status::Failed,
            Some(Reason::JobEnded),
            "its parts are gone".to_owned(),
            now,
        );
        return p;
    };
    match second {
        None if first.status_code == Status::Succeeded => {
            let hands = Hands {
                under_parent: true,
                ..Hands::default()
            };
            let order = (2, p.processor_id.clone(), Destination::Host(host.clone()));
            let second = child(machine, &p, order, hands);
            machine.put(second);
            let message = format!("{standby} has left {host}; {} follows", p.processor_id);
            p.go_on(Phase::Running, message, now);
        }
        None if first.status_code.is_final() => {
            let message = format!("{standby} was not moved: {}", first.response_message);
            p.finish(Status::Failed, first.reason_code, message, now);
        }
        Some(second) if second.status_code.is_final() => {
            p.phase = second.phase;
            p.final_host = second.final_host;
            p.recovery_host = second.recovery_host;
            let status = match second.status_code {
                Status::Succeeded => Status::Succeeded,
                _ => Status::Failed,
            };
            p.finish(status, second.reason_code, second.response_message, now);
        }
        Some(child) => mirror(&mut p, &child),
        None => mirror(&mut p, &first),
    }
    p
}

fn mirror(p: &mut Placement, child: &Placement) {
    if let Some(phase) = child.phase
        && (p.phase, p.updated_at) != (Some(phase), child.updated_at)
    {
        p.go_on(phase, child.response_message.clone(), child.updated_at);
    }
}
