//! Services and their processors. Converts a submission to terms, and the state machine to demand,
//! environment and views. The functions are pure.

use std::collections::BTreeMap;

use hayward_job_converter_api::processors::{
    Deployment, FailoverView, FailureView, ProcessorState, ProcessorView,
};
use hayward_job_converter_api::submission::ServiceSubmission;
use hayward_job_converter_domain::processors::{
    Failover, Over, Processor as Kept, ProcessorId, Processors, Record, Retries, State, Terms,
};
use hayward_vocabulary::{Apart, NodeName, Processor, Role, Timestamp};
use serde::{Deserialize, Serialize};

use crate::work::{Process, What, Work, version};

pub fn terms(service: &ServiceSubmission) -> Terms {
    let standbys = service.standbys.unwrap_or(0);
    Terms {
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

pub fn from_work(what: &What) -> Option<Box<Processors>> {
    match what {
        What::Service(service) => Some(Box::new(Processors::new(terms(service)))),
        _ => None,
    }
}

impl Work {
    pub fn place(&self, slot: usize) -> Option<ProcessorId> {
        Some(self.processors.as_ref()?.terms().id_at(slot))
    }

    /// Returns the id of the current deployment.
    pub fn deployment(&self) -> String {
        self.version.deployment(&self.id)
    }

    /// Returns the number of live processes of older deployments.
    pub fn outdated(&self) -> usize {
        let now = self.version.deployed;
        let old = |process: &&Process| process.alive() && process.deployed != now;
        let all = self.slots.iter().flat_map(|slot| slot.processes.values());
        all.filter(old).count()
    }

    fn role(&self, place: ProcessorId) -> Role {
        match place.replica {
            None => Role::Active,
            Some(replica) => Role::Standby {
                of: self.id.instance(place.active),
                replica,
            },
        }
    }

    pub fn processor(&self, slot: usize) -> Option<Processor> {
        let processors = self.processors.as_ref()?;
        Some(Processor {
            deployment: self.deployment(),
            role: self.role(processors.terms().id_at(slot)),
            host_affinity: processors.terms().host_affinity,
            failed: processors.get(slot)?.state() == State::Failed,
        })
    }

    /// Returns the anti-affinity of a slot, which keeps an active and its standbys apart.
    pub fn apart(&self, slot: usize) -> Option<Apart> {
        let (What::Service(service), Some(processors)) = (&self.what, &self.processors) else {
            return None;
        };
        let terms = processors.terms();
        (terms.standbys > 0).then(|| Apart {
            group: self.id.instance(terms.id_at(slot).active),
            by_label: service.fault_domain_label.clone(),
        })
    }

    /// Returns the time that orders a slot. Actives sort before their standbys.
    pub fn order_time(&self, slot: usize) -> Timestamp {
        let standby = self.place(slot).and_then(|place| place.replica);
        standby.map_or(self.submitted_at, |replica| {
            self.submitted_at.plus_ms(1 + u64::from(replica))
        })
    }

    /// Returns the environment that identifies a process of a service.
    pub fn identity_environment(&self, slot: usize) -> BTreeMap<String, String> {
        let Some(place) = self.place(slot) else {
            return BTreeMap::new();
        };
        let role = if place.replica.is_some() {
            "standby"
        } else {
            "active"
        };
        let words = [
            ("HAYWARD_PROCESSOR", place.to_string()),
            ("HAYWARD_ROLE", role.to_owned()),
            (version::VARIABLE, self.deployment()),
        ];
        words.map(|(name, word)| (name.to_owned(), word)).into()
    }

    pub fn deployment_view(&self) -> Option<Deployment> {
        let (What::Service(service), Some(processors)) = (&self.what, &self.processors) else {
            return None;
        };
        let terms = processors.terms();
        let slots = 0..terms.count();
        Some(Deployment {
            deployment: self.deployment(),
            generation: u64::from(self.version.generation),
            outdated: self.outdated() as u64,
            healthy: processors.is_healthy(),
            host_affinity: terms.host_affinity,
            standbys: terms.standbys,
            fault_domain_label: service.fault_domain_label.clone(),
            retries: service.retries.clone(),
            processors: slots
                .filter_map(|slot| Some(self.processor_view(slot, processors.get(slot)?)))
                .collect(),
        })
    }

    fn processor_view(&self, slot: usize, it: &Kept) -> ProcessorView {
        let place = self.place(slot).unwrap_or(ProcessorId {
            active: 0,
            replica: None,
        });
        let occupant = it.occupant();
        ProcessorView {
            processor: place.to_string(),
            work: self.slot_id(slot),
            role: self.role(place),
            state: state(it.state()),
            host: occupant
                .map(|occupant| &occupant.host)
                .or(it.last_host())
                .cloned(),
            allocation: occupant.map(|occupant| occupant.allocation.clone()),
            wanted_host: it.wanted_host().cloned(),
            failures: it.record().map(failures),
            failover: it.failover().map(|failover| FailoverView {
                lost: failover.key.clone(),
                used: failover.used.iter().cloned().collect(),
                waits_for: failover.waits_for.map(|standby| self.slot_id(standby)),
            }),
        }
    }

    /// Returns the name under which the last nodes of its processors are stored. `None` without
    /// host affinity.
    pub fn host_key(&self) -> Option<String> {
        let processors = self.processors.as_ref()?;
        let What::Service(service) = &self.what else {
            return None;
        };
        let name = || service.name.clone().unwrap_or_else(|| self.id.to_string());
        processors.terms().host_affinity.then(name)
    }
}

fn state(state: State) -> ProcessorState {
    match state {
        State::Waiting => ProcessorState::Waiting,
        State::Pending => ProcessorState::Pending,
        State::Running => ProcessorState::Running,
        State::Failed => ProcessorState::Failed,
        State::Completed => ProcessorState::Completed,
    }
}

fn failures(record: &Record) -> FailureView {
    FailureView {
        count: record.count,
        last_at: Timestamp::from_unix_ms(record.last_failure_ms),
        last_delay_ms: record.last_delay_ms,
    }
}

/// Returns the column value for the end of a processor.
pub fn over_name(over: Over) -> &'static str {
    match over {
        Over::Failed => "failed",
        Over::Completed => "completed",
    }
}

pub fn over_of(name: &str) -> Over {
    match name {
        "completed" => Over::Completed,
        _ => Over::Failed,
    }
}

/// A failover as stored in its row.
#[derive(Serialize, Deserialize)]
struct Written {
    key: Option<hayward_vocabulary::AllocationId>,
    used: std::collections::BTreeSet<NodeName>,
    used_standbys: std::collections::BTreeSet<hayward_vocabulary::AllocationId>,
    asked: Option<NodeName>,
    waits_for: Option<usize>,
}

pub fn failover_text(failover: &Failover) -> Option<String> {
    let it = failover.clone();
    let written = Written {
        key: it.key,
        used: it.used,
        used_standbys: it.used_standbys,
        asked: it.requested,
        waits_for: it.waits_for,
    };
    serde_json::to_string(&written).ok()
}

pub fn failover_of(text: &str) -> Result<Failover, serde_json::Error> {
    let it: Written = serde_json::from_str(text)?;
    Ok(Failover {
        used: it.used,
        used_standbys: it.used_standbys,
        requested: it.asked,
        waits_for: it.waits_for,
        ..Failover::new(it.key)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_failover_reads_back() {
        let mut failover = Failover::new(Some("alc_1".parse().unwrap()));
        failover.used.insert("n1".parse().unwrap());
        failover.used_standbys.insert("alc_2".parse().unwrap());
        failover.requested = Some("n1".parse().unwrap());
        failover.waits_for = Some(3);
        let read = failover_of(&failover_text(&failover).unwrap()).unwrap();
        assert_eq!(read, failover);
    }
}
