//! Applies the commands about placements, which move and restart processes of services.

use hayward_container_manager_api::placements::{
    PlacementStatus, PlacementView, ProcessorState, ProcessorView, ResourceRequestView,
};
use hayward_container_manager_placement as placement;
use hayward_container_manager_placement::{Environment, LiveState, PlacementRequest, Submitted};
use hayward_publication::{Batch, Moment};
use hayward_vocabulary::{NodeName, WorkId};

use super::ledger_environment::LedgerEnvironment;
use crate::command::{
    OwnerFilter, PlacementCommand, PlacementFilter, PlacementId, Refusal, SubmissionResult,
    SubmittedRequest, Target,
};
use crate::ledger::Ledger;
use crate::model::Rows;

impl Ledger {
    pub(crate) fn apply_placement_command(
        &mut self,
        command: PlacementCommand,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        match command {
            PlacementCommand::Submit {
                request,
                owner,
                reply,
            } => {
                let result = self.submit_placement(request, &owner, moment, batch);
                batch.answer(reply, result);
            }
            PlacementCommand::Show { id, owner, reply } => {
                batch.answer(reply, self.show_placement(&id, &owner));
            }
            PlacementCommand::List {
                deployment,
                filter,
                owner,
                reply,
            } => batch.answer(reply, self.list_placements(&deployment, &filter, &owner)),
            PlacementCommand::Withdraw {
                id,
                expected_generation,
                owner,
                reply,
            } => {
                let result = self.withdraw_placement(&id, expected_generation, &owner, batch);
                batch.answer(reply, result);
            }
            PlacementCommand::ListProcessors {
                deployment,
                owner,
                reply,
            } => {
                let result = self.list_processors(&deployment, &owner, moment, batch);
                batch.answer(reply, result);
            }
            PlacementCommand::ListRequests {
                deployment,
                owner,
                reply,
            } => batch.answer(reply, self.list_requests(&deployment, &owner)),
        }
    }

    /// Returns the id of a deployment. `id` names the deployment or its service. A service stands
    /// for its current deployment, or else for its deployment that ended last.
    fn find_deployment(&self, id: &str, owner: &OwnerFilter) -> Result<String, Refusal> {
        let state = &self.placements;
        let find_by_service = || {
            let deployments = state.deployments.iter();
            let service_deployments = deployments.filter(|(_, it)| it.service.as_str() == id);
            service_deployments.max_by_key(|(_, it)| (it.ended_at.is_none(), it.ended_at))
        };
        let deployment = state.deployments.get_key_value(id);
        let deployment = deployment
            .or_else(find_by_service)
            .filter(|(_, it)| owner.as_ref().is_none_or(|user| it.user.as_str() == user));
        match deployment {
            Some((id, it)) if it.ended_at.is_some() => Err(Refusal::DeploymentEnded(id.clone())),
            Some((id, _)) => Ok(id.clone()),
            None if !state.is_synced() => Err(Refusal::NotSynced),
            None => Err(Refusal::NotFound(format!("deployment {id}"))),
        }
    }

    /// Submits a request, and takes its first steps.
    pub(crate) fn submit_placement(
        &mut self,
        request: SubmittedRequest,
        owner: &OwnerFilter,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<SubmissionResult, Refusal> {
        let (deployment, processor) = self.resolve_target(&request.processor, owner)?;
        let user = self.placements.deployments[&deployment].user.clone();
        let uuid = request.uuid.clone();
        let request = PlacementRequest {
            uuid: request.uuid,
            deployment_id: deployment,
            processor_id: processor,
            destination_host: request.destination,
            request_expiry_ms: request.request_expiry_ms,
            force: request.force,
            timestamp: request.timestamp.unwrap_or(moment.now),
            user,
            requested_by: request.requested_by,
            reject_if_busy: request.reject_if_busy,
        };
        let mut actions = std::mem::take(&mut self.placements.actions);
        let environment = LedgerEnvironment {
            ledger: self,
            moment,
            batch,
        };
        let submitted = actions.submit(request, &environment);
        self.placements.actions = actions;
        let is_new = match submitted {
            Ok(Submitted::New(_)) => true,
            Ok(Submitted::Repeated(_)) => false,
            Err(placement::Refusal::Busy(other)) => return Err(Refusal::Busy(other)),
            Err(_) => return Err(Refusal::UuidReused(uuid)),
        };
        // Actions are advanced in the same batch, so that the response shows the current status.
        self.advance_placements(moment, batch);
        let placement = self.placements.actions.get(&uuid).map(to_placement_view);
        let placement = placement.ok_or(Refusal::NotFound(uuid))?;
        Ok(SubmissionResult { is_new, placement })
    }

    /// Returns the deployment and the processor that a request is about.
    fn resolve_target(
        &self,
        target: &Target,
        owner: &OwnerFilter,
    ) -> Result<(String, WorkId), Refusal> {
        match target {
            Target::Processor { deployment, id } => {
                let deployment = self.find_deployment(deployment, owner)?;
                let service = &self.placements.deployments[&deployment].service;
                let full_id = if id.contains('_') {
                    id.clone()
                } else {
                    format!("{service}.{id}")
                };
                let work = WorkId::new(full_id);
                let work = work.map_err(|error| Refusal::NotFound(error.to_string()))?;
                Ok((deployment, work))
            }
            Target::Container(id) => {
                let not_found = || Refusal::NotFound(format!("container {id}"));
                let container = self.containers.get(id).ok_or_else(not_found)?;
                let user = container.user.as_str();
                if owner.as_ref().is_some_and(|owner| owner != user) {
                    return Err(not_found());
                }
                let work = container.work.clone();
                let Some(entry) = self.placements.processors.get(work.as_str()) else {
                    let reason = if work.as_str().starts_with(super::WORKER_POOL_PREFIX) {
                        format!(
                            "{work} is a worker of a pool; only the owner of the pool may move it"
                        )
                    } else {
                        format!("{work} is not part of a service")
                    };
                    return Err(Refusal::NotAServiceProcess(reason));
                };
                Ok((entry.processor.deployment.clone(), work))
            }
        }
    }

    fn show_placement(
        &self,
        id: &PlacementId,
        owner: &OwnerFilter,
    ) -> Result<PlacementView, Refusal> {
        let deployment = self.find_deployment(&id.deployment, owner)?;
        let uuid = id.uuid.as_str();
        let placement = self.placements.actions.get(uuid);
        let placement = placement.filter(|it| it.deployment_id == deployment);
        placement
            .map(to_placement_view)
            .ok_or_else(|| Refusal::NotFound(format!("placement {uuid}")))
    }

    fn list_placements(
        &self,
        deployment: &str,
        filter: &PlacementFilter,
        owner: &OwnerFilter,
    ) -> Result<Vec<PlacementView>, Refusal> {
        let deployment = self.find_deployment(deployment, owner)?;
        let matches = |it: &&placement::Placement| {
            let id = it.processor_id.as_str();
            let number = id.split_once('.').map(|(_, number)| number);
            it.deployment_id == deployment
                && it.seq >= filter.after
                && (filter.processor.as_deref())
                    .is_none_or(|processor| processor == id || Some(processor) == number)
        };
        let mut placements: Vec<_> = self.placements.actions.iter().filter(matches).collect();
        placements.sort_by_key(|it| it.seq);
        let views = placements.into_iter().map(to_placement_view);
        let views = views.filter(|it| {
            let status = filter.status;
            status.is_none_or(|status| it.status_code == status)
        });
        Ok(views.take(filter.limit).collect())
    }

    fn withdraw_placement(
        &mut self,
        id: &PlacementId,
        expected_generation: Option<u64>,
        owner: &OwnerFilter,
        batch: &mut Batch<Rows>,
    ) -> Result<(), Refusal> {
        self.show_placement(id, owner)?;
        let uuid = id.uuid.as_str();
        let placement = self.placements.actions.get(uuid);
        let changed = placement
            .filter(|it| expected_generation.is_some_and(|generation| generation != it.generation));
        if let Some(changed) = changed {
            return Err(Refusal::Changed(changed.status_code.as_str()));
        }
        match self.placements.actions.withdraw(uuid) {
            Ok(()) => {
                batch.rows.placements.remove(uuid);
                batch.rows.deleted_placements.insert(uuid.to_owned());
                Ok(())
            }
            Err(placement::Refusal::AlreadyStarted(status)) => {
                Err(Refusal::AlreadyStarted(status.as_str()))
            }
            Err(_) => Err(Refusal::NotFound(format!("placement {uuid}"))),
        }
    }

    fn list_processors(
        &mut self,
        deployment: &str,
        owner: &OwnerFilter,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) -> Result<Vec<ProcessorView>, Refusal> {
        let deployment = self.find_deployment(deployment, owner)?;
        let entries = self.placements.processors.iter().map(|(_, it)| it.clone());
        let entries: Vec<_> = entries
            .filter(|it| it.processor.deployment == deployment)
            .collect();
        let environment = LedgerEnvironment {
            ledger: self,
            moment,
            batch,
        };
        let views = entries.into_iter().map(|entry| {
            let mut live = environment.live_containers(&entry.work);
            live.retain(|it| it.state != LiveState::Held);
            live.sort_by_key(|it| it.state == LiveState::Stopping);
            let container = live.into_iter().next();
            let state = match container.as_ref().map(|it| it.state) {
                Some(LiveState::Running | LiveState::Stopping) => ProcessorState::Running,
                Some(_) => ProcessorState::Pending,
                None if entry.processor.failed => ProcessorState::Failed,
                None => ProcessorState::Waiting,
            };
            let actions = &environment.ledger.placements.actions;
            let mut open = actions.open().filter(|it| it.is_in_flight());
            let in_flight = open.find(|it| it.processor_id == entry.work);
            ProcessorView {
                deployment_id: entry.processor.deployment,
                user: entry.user,
                role: entry.processor.role,
                host_affinity: entry.processor.host_affinity,
                state,
                host: container
                    .as_ref()
                    .map(|it| it.host.clone())
                    .or_else(|| environment.last_host(&entry.work)),
                resource_id: container.map(|it| it.allocation),
                in_flight: in_flight.map(|it| it.uuid.clone()),
                id: entry.work,
            }
        });
        Ok(views.collect())
    }

    pub(crate) fn list_requests(
        &self,
        deployment: &str,
        owner: &OwnerFilter,
    ) -> Result<Vec<ResourceRequestView>, Refusal> {
        let deployment = self.find_deployment(deployment, owner)?;
        let open = self.placements.actions.open();
        let in_deployment = open.filter(|it| it.deployment_id == deployment);
        let requests = in_deployment.filter_map(|it| {
            let request = it.request()?;
            let host = request.host.as_ref().map_or("ANY_HOST", NodeName::as_str);
            Some(ResourceRequestView {
                host: host.to_owned(),
                id: request.id,
                processor_id: request.work,
                placement: it.uuid.clone(),
                exclude: request.exclude,
                asked_at: it.progress.requested_at,
                granted: it.progress.reserved.clone(),
            })
        });
        Ok(requests.collect())
    }
}

/// Converts a placement to the type of the API.
fn to_placement_view(placement: &placement::Placement) -> PlacementView {
    let placement = placement.clone();
    PlacementView {
        uuid: placement.uuid,
        deployment_id: placement.deployment_id,
        processor_id: placement.processor_id,
        destination_host: placement.destination_host.to_string(),
        request_expiry_ms: placement.request_expiry_ms,
        force: placement.force,
        timestamp: placement.timestamp,
        status_code: to_api_enum(Some(placement.status_code)).unwrap_or(PlacementStatus::Unknown),
        response_message: placement.response_message,
        reason_code: to_api_enum(placement.reason_code),
        queued_because: to_api_enum(placement.queued_because),
        phase: to_api_enum(placement.phase),
        resolved_host: placement.resolved_host,
        source_host: placement.source_host,
        final_host: placement.final_host,
        recovery_host: placement.recovery_host,
        parent_uuid: placement.parent_uuid,
        request_consumed_at: placement.request_consumed_at,
        updated_at: placement.updated_at,
        requested_by: placement.requested_by,
        seq: placement.seq,
        generation: placement.generation,
    }
}

/// Converts an enum to the one of the API, which has the same names.
fn to_api_enum<Internal, Api>(value: Option<Internal>) -> Option<Api>
where
    Internal: serde::Serialize,
    Api: serde::de::DeserializeOwned,
{
    let json = serde_json::to_value(value?).ok()?;
    serde_json::from_value(json).ok()
}
