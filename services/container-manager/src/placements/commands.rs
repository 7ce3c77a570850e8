//! Somebody asks about placements: what they may see, and what they are told.

use hayward_container_manager_api::placements::{
    PlacementStatus, PlacementView, ProcessorState, ProcessorView, ResourceRequestView,
};
use hayward_container_manager_placement as placement;
use hayward_container_manager_placement::{Destination, Order, StandState, Submitted, World};
use hayward_publication::{Batch, Moment};
use hayward_vocabulary::{AllocationId, NodeName, Timestamp, WorkId};

use super::effects::Hand;
use crate::command::{Named, Only, Posted, Refusal};
use crate::ledger::Ledger;
use crate::model::Rows;

impl Ledger {
    /// A deployment by its id, or by that of its service the one that is live or ended last.
    fn deployment(&self, id: &str, only: &Only) -> Result<String, Refusal> {
        let places = &self.placements;
        let of_service = || {
            let all = places.deployments.iter();
            let own = all.filter(|(_, it)| it.service.as_str() == id);
            own.max_by_key(|(_, it)| (it.ended_at.is_none(), it.ended_at))
        };
        let found = places.deployments.get_key_value(id);
        let found = found
            .or_else(of_service)
            .filter(|(_, it)| only.as_ref().is_none_or(|user| it.user.as_str() == user));
        match found {
            Some((id, it)) if it.ended_at.is_some() => Err(Refusal::Dead(id.clone())),
            Some((id, _)) => Ok(id.clone()),
            None if !places.informed() => Err(Refusal::NotYet),
            None => Err(Refusal::Absent(format!("deployment {id}"))),
        }
    }

    /// Takes an order in; true where it was not there before.
    pub(crate) fn post(
        &mut self,
        posted: Posted,
        only: &Only,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<(bool, PlacementView), Refusal> {
        let (deployment, processor) = self.named(&posted.processor, only)?;
        let user = self.placements.deployments[&deployment].user.clone();
        let uuid = posted.uuid.clone();
        let order = Order {
            uuid: posted.uuid,
            deployment_id: deployment,
            processor_id: processor,
            destination_host: posted.destination,
            request_expiry_ms: posted.request_expiry_ms,
            force: posted.force,
            timestamp: posted.timestamp.unwrap_or(moment.now),
            user,
            requested_by: posted.requested_by,
            reject_if_busy: posted.reject_if_busy,
        };
        let mut machine = std::mem::take(&mut self.placements.machine);
        let hand = Hand {
            ledger: self,
            moment,
            batch,
        };
        let submitted = machine.submit(order, &hand);
        self.placements.machine = machine;
        let fresh = match submitted {
            Ok(Submitted::Fresh(_)) => true,
            Ok(Submitted::Replay(_)) => false,
            Err(placement::Refusal::Busy(other)) => return Err(Refusal::Busy(other)),
            Err(_) => return Err(Refusal::OtherBody(uuid)),
        };
        // Looked at within this batch, so that the answer says what has become of it already.
        self.place(moment, batch);
        let view = self.placements.machine.get(&uuid).map(view);
        Ok((fresh, view.ok_or(Refusal::Absent(uuid))?))
    }

    fn named(&self, named: &Named, only: &Only) -> Result<(String, WorkId), Refusal> {
        match named {
            Named::Processor { deployment, id } => {
                let found = self.deployment(deployment, only)?;
                let service = &self.placements.deployments[&found].service;
                let full = if id.contains('_') {
                    id.clone()
                } else {
                    format!("{service}.{id}")
                };
                let work = WorkId::new(full);
                let work = work.map_err(|bad| Refusal::Absent(bad.to_string()))?;
                Ok((found, work))
            }
            Named::Container(id) => {
                let absent = || Refusal::Absent(format!("container {id}"));
                let container = self.containers.get(id).ok_or_else(absent)?;
                let user = container.user.as_str();
                if only.as_ref().is_some_and(|only| only != user) {
                    return Err(absent());
                }
                let work = container.work.clone();
                let Some(entry) = self.placements.processors.get(work.as_str()) else {
                    let why = if work.as_str().starts_with(super::POOL) {
                        format!("{work} is a worker of a pool, whose owner moves it")
                    } else {
                        format!("{work} is not one")
                    };
                    return Err(Refusal::NotOfAService(why));
                };
                Ok((entry.processor.deployment.clone(), work))
            }
        }
    }

    pub(crate) fn show(
        &self,
        deployment: &str,
        uuid: &str,
        only: &Only,
    ) -> Result<PlacementView, Refusal> {
        let deployment = self.deployment(deployment, only)?;
        let found = self.placements.machine.get(uuid);
        let found = found.filter(|it| it.deployment_id == deployment);
        found
            .map(view)
            .ok_or_else(|| Refusal::Absent(format!("placement {uuid}")))
    }

    pub(crate) fn list(
        &self,
        deployment: &str,
        (processor, status): (Option<&str>, Option<PlacementStatus>),
        (after, limit): (u64, usize),
        only: &Only,
    ) -> Result<Vec<PlacementView>, Refusal> {
        let deployment = self.deployment(deployment, only)?;
        let wanted = |it: &&placement::Placement| {
            let id = it.processor_id.as_str();
            let own = id.split_once('.').map(|(_, own)| own);
            it.deployment_id == deployment
                && it.seq >= after
                && processor.is_none_or(|name| name == id || Some(name) == own)
        };
        let mut found: Vec<_> = self.placements.machine.iter().filter(wanted).collect();
        found.sort_by_key(|it| it.seq);
        let views = found.into_iter().map(view);
        let views = views.filter(|it| status.is_none_or(|status| it.status_code == status));
        Ok(views.take(limit).collect())
    }

    pub(crate) fn withdraw(
        &mut self,
        (deployment, uuid): (&str, &str),
        unless: Option<u64>,
        only: &Only,
        batch: &mut Batch<Rows>,
    ) -> Result<(), Refusal> {
        self.show(deployment, uuid, only)?;
        let known = self.placements.machine.get(uuid);
        let known = known.filter(|it| unless.is_some_and(|from| from != it.generation));
        if let Some(other) = known {
            return Err(Refusal::Changed(other.status_code.as_str()));
        }
        match self.placements.machine.withdraw(uuid) {
            Ok(()) => {
                batch.rows.placements.remove(uuid);
                batch.rows.forgotten.insert(uuid.to_owned());
                Ok(())
            }
            Err(placement::Refusal::Begun(status)) => Err(Refusal::Begun(status.as_str())),
            Err(_) => Err(Refusal::Absent(format!("placement {uuid}"))),
        }
    }

    pub(crate) fn processors(
        &mut self,
        deployment: &str,
        only: &Only,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<Vec<ProcessorView>, Refusal> {
        let deployment = self.deployment(deployment, only)?;
        let all = self.placements.processors.iter().map(|(_, it)| it.clone());
        let ours: Vec<_> = all
            .filter(|it| it.processor.deployment == deployment)
            .collect();
        let hand = Hand {
            ledger: self,
            moment,
            batch,
        };
        let seen = ours.into_iter().map(|entry| {
            let mut stands = hand.stands(&entry.work);
            stands.retain(|it| it.state != StandState::Held);
            stands.sort_by_key(|it| it.state == StandState::Stopping);
            let stand = stands.into_iter().next();
            let state = match stand.as_ref().map(|it| it.state) {
                Some(StandState::Running | StandState::Stopping) => ProcessorState::Running,
                Some(_) => ProcessorState::Pending,
                None if entry.processor.failed => ProcessorState::Failed,
                None => ProcessorState::Waiting,
            };
            let machine = &hand.ledger.placements.machine;
            let mut open = machine.open().filter(|it| it.is_in_flight());
            let flight = open.find(|it| it.processor_id == entry.work);
            ProcessorView {
                deployment_id: entry.processor.deployment,
                user: entry.user,
                role: entry.processor.role,
                host_affinity: entry.processor.host_affinity,
                state,
                host: stand
                    .as_ref()
                    .map(|it| it.host.clone())
                    .or_else(|| hand.last_host(&entry.work)),
                resource_id: stand.map(|it| it.allocation),
                in_flight: flight.map(|it| it.uuid.clone()),
                id: entry.work,
            }
        });
        Ok(seen.collect())
    }

    pub(crate) fn requests(
        &self,
        deployment: &str,
        only: &Only,
    ) -> Result<Vec<ResourceRequestView>, Refusal> {
        let deployment = self.deployment(deployment, only)?;
        let open = self.placements.machine.open();
        let ours = open.filter(|it| it.deployment_id == deployment);
        let requests = ours.filter_map(|it| {
            let request = it.request()?;
            let host = request.host.as_ref().map_or("ANY_HOST", NodeName::as_str);
            Some(ResourceRequestView {
                host: host.to_owned(),
                id: request.id,
                processor_id: request.work,
                placement: it.uuid.clone(),
                exclude: request.exclude,
                asked_at: it.hands.asked_at,
                granted: it.hands.reserved.clone(),
            })
        });
        Ok(requests.collect())
    }
}

/// A placement in the words of the wire.
fn view(placement: &placement::Placement) -> PlacementView {
    let it = placement.clone();
    PlacementView {
        uuid: it.uuid,
        deployment_id: it.deployment_id,
        processor_id: it.processor_id,
        destination_host: it.destination_host.to_string(),
        request_expiry_ms: it.request_expiry_ms,
        force: it.force,
        timestamp: it.timestamp,
        status_code: spoken(Some(it.status_code)).unwrap_or(PlacementStatus::Unknown),
        response_message: it.response_message,
        reason_code: spoken(it.reason_code),
        queued_because: spoken(it.queued_because),
        phase: spoken(it.phase),
        resolved_host: it.resolved_host,
        source_host: it.source_host,
        final_host: it.final_host,
        recovery_host: it.recovery_host,
        parent_uuid: it.parent_uuid,
        request_consumed_at: it.request_consumed_at,
        updated_at: it.updated_at,
        requested_by: it.requested_by,
        seq: it.seq,
        generation: it.generation,
    }
}

/// A word of the machine as a word of the wire: they are spelled alike.
fn spoken<T: serde::Serialize, W: serde::de::DeserializeOwned>(word: Option<T>) -> Option<W> {
    let written = serde_json::to_value(word?).ok()?;
    serde_json::from_value(written).ok()
}
