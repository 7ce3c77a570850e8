//! Conversions for the processors of services: from a submission to processor settings, and from
//! the state machine to demand, environment, views and rows. The functions are pure.

use std::collections::BTreeMap;

use hayward_job_converter_api::service_processors::{
    Deployment, FailoverView, FailureView, ProcessorState, ProcessorView,
};
use hayward_job_converter_api::submission::ServiceSubmission;
use hayward_job_converter_domain::service_processors::{
    Failover, FailureRecord, Processor as DomainProcessor, ProcessorId, ProcessorOutcome,
    ProcessorSettings, Processors, Retries, State,
};
use hayward_vocabulary::{Apart, NodeName, Processor, Role, Timestamp};
use serde::{Deserialize, Serialize};

use crate::work::{Process, Work, WorkSpec, service_deployment};

pub fn processor_settings(service: &ServiceSubmission) -> ProcessorSettings {
    let standbys = service.standbys.unwrap_or(0);
    ProcessorSettings {
        instances: service.instances.unwrap_or(1),
        standbys,
        host_affinity: service.host_affinity.unwrap_or(standbys > 0),
        retries: service.retries.as_ref().map(|retries| Retries {
            count: retries.count,
            window_ms: retries.window_ms,
            last_delay_ms: retries.last_delay_ms,
            fail_service: retries.fail_service,
        }),
    }
}

pub fn new_processors(spec: &WorkSpec) -> Option<Box<Processors>> {
    match spec {
        WorkSpec::Service(service) => Some(Box::new(Processors::new(processor_settings(service)))),
        _ => None,
    }
}

impl Work {
    pub fn processor_id(&self, slot: usize) -> Option<ProcessorId> {
        Some(self.processors.as_ref()?.settings().id_at(slot))
    }

    /// Returns the id of the current deployment.
    pub fn deployment(&self) -> String {
        self.version.deployment(&self.id)
    }

    /// Returns the number of live processes of older deployments.
    pub fn outdated_count(&self) -> usize {
        let current_number = self.version.deployment_number;
        let is_outdated =
            |process: &&Process| process.is_alive() && process.deployment_number != current_number;
        let all = self.slots.iter().flat_map(|slot| slot.processes.values());
        all.filter(is_outdated).count()
    }

    fn role(&self, processor_id: ProcessorId) -> Role {
        match processor_id.replica {
            None => Role::Active,
            Some(replica) => Role::Standby {
                of: self.id.instance(processor_id.active),
                replica,
            },
        }
    }

    pub fn processor(&self, slot: usize) -> Option<Processor> {
        let processors = self.processors.as_ref()?;
        Some(Processor {
            deployment: self.deployment(),
            role: self.role(processors.settings().id_at(slot)),
            host_affinity: processors.settings().host_affinity,
            failed: processors.get(slot)?.state() == State::Failed,
        })
    }

    /// Returns the anti-affinity of a slot, which keeps an active and its standbys apart.
    pub fn anti_affinity(&self, slot: usize) -> Option<Apart> {
        let (WorkSpec::Service(service), Some(processors)) = (&self.spec, &self.processors) else {
            return None;
        };
        let settings = processors.settings();
        (settings.standbys > 0).then(|| Apart {
            group: self.id.instance(settings.id_at(slot).active),
            by_label: service.fault_domain_label.clone(),
        })
    }

    /// Returns the submission time in the demand of a slot. The scheduler serves older demand
    /// first, so standbys get a slightly later time than their actives.
    pub fn demand_order_time(&self, slot: usize) -> Timestamp {
        let standby = self
            .processor_id(slot)
            .and_then(|processor_id| processor_id.replica);
        standby.map_or(self.submitted_at, |replica| {
            self.submitted_at.plus_ms(1 + u64::from(replica))
        })
    }

    /// Returns the environment that identifies a process of a service.
    pub fn identity_environment(&self, slot: usize) -> BTreeMap<String, String> {
        let Some(processor_id) = self.processor_id(slot) else {
            return BTreeMap::new();
        };
        let role = if processor_id.replica.is_some() {
            "standby"
        } else {
            "active"
        };
        let variables = [
            ("HAYWARD_PROCESSOR", processor_id.to_string()),
            ("HAYWARD_ROLE", role.to_owned()),
            (service_deployment::DEPLOYMENT_VARIABLE, self.deployment()),
        ];
        variables
            .map(|(name, value)| (name.to_owned(), value))
            .into()
    }

    pub fn deployment_view(&self) -> Option<Deployment> {
        let (WorkSpec::Service(service), Some(processors)) = (&self.spec, &self.processors) else {
            return None;
        };
        let settings = processors.settings();
        let slots = 0..settings.count();
        Some(Deployment {
            deployment: self.deployment(),
            generation: u64::from(self.version.generation),
            outdated: self.outdated_count() as u64,
            healthy: processors.is_healthy(),
            host_affinity: settings.host_affinity,
            standbys: settings.standbys,
            fault_domain_label: service.fault_domain_label.clone(),
            retries: service.retries.clone(),
            processors: slots
                .filter_map(|slot| Some(self.processor_view(slot, processors.get(slot)?)))
                .collect(),
        })
    }

    fn processor_view(&self, slot: usize, processor: &DomainProcessor) -> ProcessorView {
        let processor_id = self.processor_id(slot).unwrap_or(ProcessorId {
            active: 0,
            replica: None,
        });
        let occupant = processor.occupant();
        ProcessorView {
            processor: processor_id.to_string(),
            work: self.slot_id(slot),
            role: self.role(processor_id),
            state: state_view(processor.state()),
            host: occupant
                .map(|occupant| &occupant.host)
                .or(processor.last_host())
                .cloned(),
            allocation: occupant.map(|occupant| occupant.allocation.clone()),
            wanted_host: processor.requested_host().cloned(),
            failures: processor.failures().map(failure_view),
            failover: processor.failover().map(|failover| FailoverView {
                lost: failover.lost_allocation.clone(),
                used: failover.tried_hosts.iter().cloned().collect(),
                waits_for: failover.waits_for.map(|standby| self.slot_id(standby)),
            }),
        }
    }

    /// Returns the name under which the last nodes of its processors are stored. `None` without
    /// host affinity.
    pub fn host_key(&self) -> Option<String> {
        let processors = self.processors.as_ref()?;
        let WorkSpec::Service(service) = &self.spec else {
            return None;
        };
        let name = || service.name.clone().unwrap_or_else(|| self.id.to_string());
        processors.settings().host_affinity.then(name)
    }
}

fn state_view(state: State) -> ProcessorState {
    match state {
        State::Waiting => ProcessorState::Waiting,
        State::Pending => ProcessorState::Pending,
        State::Running => ProcessorState::Running,
        State::Failed => ProcessorState::Failed,
        State::Completed => ProcessorState::Completed,
    }
}

fn failure_view(record: &FailureRecord) -> FailureView {
    FailureView {
        count: record.count,
        last_at: Timestamp::from_unix_ms(record.last_failure_ms),
        last_delay_ms: record.last_delay_ms,
    }
}

/// Returns the column value of the outcome of a processor.
pub fn outcome_name(outcome: ProcessorOutcome) -> &'static str {
    match outcome {
        ProcessorOutcome::Failed => "failed",
        ProcessorOutcome::Completed => "completed",
    }
}

/// Parses the column value of the outcome of a processor.
pub fn outcome_from_name(name: &str) -> ProcessorOutcome {
    match name {
        "completed" => ProcessorOutcome::Completed,
        _ => ProcessorOutcome::Failed,
    }
}

/// A failover as stored in its row.
#[derive(Serialize, Deserialize)]
struct StoredFailover {
    #[serde(rename = "key")]
    lost_allocation: Option<hayward_vocabulary::AllocationId>,
    #[serde(rename = "used")]
    tried_hosts: std::collections::BTreeSet<NodeName>,
    #[serde(rename = "used_standbys")]
    tried_standbys: std::collections::BTreeSet<hayward_vocabulary::AllocationId>,
    #[serde(rename = "asked")]
    requested: Option<NodeName>,
    waits_for: Option<usize>,
}

pub fn failover_text(failover: &Failover) -> Option<String> {
    let failover = failover.clone();
    let stored = StoredFailover {
        lost_allocation: failover.lost_allocation,
        tried_hosts: failover.tried_hosts,
        tried_standbys: failover.tried_standbys,
        requested: failover.requested,
        waits_for: failover.waits_for,
    };
    serde_json::to_string(&stored).ok()
}

pub fn failover_from_text(text: &str) -> Result<Failover, serde_json::Error> {
    let stored: StoredFailover = serde_json::from_str(text)?;
    Ok(Failover {
        tried_hosts: stored.tried_hosts,
        tried_standbys: stored.tried_standbys,
        requested: stored.requested,
        waits_for: stored.waits_for,
        ..Failover::new(stored.lost_allocation)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failover_is_restored_from_its_stored_text() {
        let mut failover = Failover::new(Some("alc_1".parse().unwrap()));
        failover.tried_hosts.insert("n1".parse().unwrap());
        failover.tried_standbys.insert("alc_2".parse().unwrap());
        failover.requested = Some("n1".parse().unwrap());
        failover.waits_for = Some(3);
        let read = failover_from_text(&failover_text(&failover).unwrap()).unwrap();
        assert_eq!(read, failover);
    }
}
