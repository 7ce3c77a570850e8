//! Converts orchestrators and their work to rows and back.

use hayward_job_converter_domain::orchestrator_maps::{EndReason, KnownWork, MapState, MapVersion};
use hayward_job_converter_domain::{Backoff, BackoffPolicy};
use hayward_vocabulary::{AllocationId, BadName, Timestamp, UserName};
use uuid::Uuid;

use super::{Entry, OrchestratorRecord, Orchestrators, Work, work_id};
use crate::store::orchestrators::{OrchestratorRow, Stored, StoredWork, WorkRow};

fn unreadable(error: impl std::error::Error) -> sqlx::Error {
    sqlx::Error::Protocol(format!("a row of an orchestrator cannot be read: {error}"))
}

fn invalid_name(error: BadName) -> sqlx::Error {
    unreadable(error)
}

impl OrchestratorRecord {
    pub(super) fn row(&self) -> OrchestratorRow {
        let version = self.map.version();
        OrchestratorRow {
            users: self
                .users
                .as_ref()
                .map(|users| users.iter().map(ToString::to_string).collect()),
            created_at_ms: self.created_at.unix_ms(),
            lineage: version.map(|version| version.lineage.clone()),
            sequence: version.map(|version| i64::try_from(version.sequence).unwrap_or(i64::MAX)),
            accepted_at_ms: self.accepted_at.map(Timestamp::unix_ms),
            past: self.map.past_lineages().to_vec(),
            // Serialization of texts and ids cannot fail.
            faults: serde_json::to_string(&self.faults).unwrap_or_else(|_| "{}".to_owned()),
        }
    }
}

impl Work {
    pub(super) fn row(&self, entry: &Entry, end_reason: Option<EndReason>) -> WorkRow {
        let end_reason_name = end_reason.map(|end_reason| match end_reason {
            EndReason::NotSchedulable => "not_schedulable",
            EndReason::ProcessEnded => "process_ended",
            EndReason::Refused => "refused",
        });
        WorkRow {
            orchestrator: self.orchestrator.to_string(),
            name: self.name.clone(),
            entry: serde_json::to_string(&entry.fields).unwrap_or_default(),
            arrived_at_ms: self.arrived_at.unix_ms(),
            over: end_reason_name.map(str::to_owned),
            reason: self.refusal_reason.clone(),
            gone: self.retired.is_some(),
        }
    }
}

fn end_reason_from_name(name: &str) -> EndReason {
    match name {
        "refused" => EndReason::Refused,
        "process_ended" => EndReason::ProcessEnded,
        _ => EndReason::NotSchedulable,
    }
}

impl Orchestrators {
    /// Restores all orchestrators. The result equals the state of the last commit, except for
    /// monotonic clocks, which restart.
    pub fn from_rows(stored: Stored) -> Result<Self, sqlx::Error> {
        let mut orchestrators = Self::default();
        for row in stored.orchestrators {
            let name = UserName::new(row.name).map_err(invalid_name)?;
            let users = row
                .users
                .map(|users| users.into_iter().map(UserName::new).collect());
            let users = users.transpose().map_err(invalid_name)?;
            let version = row
                .lineage
                .zip(row.sequence)
                .map(|(lineage, sequence)| MapVersion {
                    lineage,
                    sequence: u64::try_from(sequence).unwrap_or(0),
                });
            let record = OrchestratorRecord {
                users,
                created_at: Timestamp::from_unix_ms(row.created_at_ms),
                accepted_at: row.accepted_at_ms.map(Timestamp::from_unix_ms),
                accepted_ms: None,
                map: MapState::restored(version, row.past),
                uuid_by_entry: std::collections::BTreeMap::new(),
                faults: serde_json::from_str(&row.faults).map_err(unreadable)?,
            };
            orchestrators.dirty_views.insert(name.clone());
            orchestrators.by_name.insert(name, record);
        }
        for row in stored.works {
            orchestrators.restore_work(row)?;
        }
        for row in stored.settled {
            let allocation = AllocationId::new(row.allocation).map_err(invalid_name)?;
            if let Some(work) = orchestrators.works.get_mut(&row.work) {
                work.settled.insert(allocation);
            }
        }
        for row in stored.published_allocations {
            let name = UserName::new(row.scope).map_err(invalid_name)?;
            orchestrators.unconfirmed_allocations.push((name, row.key));
        }
        Ok(orchestrators)
    }

    fn restore_work(&mut self, row: StoredWork) -> Result<(), sqlx::Error> {
        let fields = serde_json::from_str(&row.entry).map_err(unreadable)?;
        let map_entry = Entry { fields };
        let orchestrator = UserName::new(row.orchestrator).map_err(invalid_name)?;
        let mut work = Work {
            orchestrator: orchestrator.clone(),
            name: row.name.clone(),
            id: work_id(map_entry.kind(), row.id),
            arrived_at: Timestamp::from_unix_ms(row.arrived_at_ms),
            refusal_reason: row.reason,
            retired: None,
            allocations: std::collections::BTreeMap::new(),
            vacate_read_at: std::collections::BTreeMap::new(),
            settled: std::collections::BTreeSet::new(),
            backoff: Backoff::default(),
        };
        if row.gone {
            work.retired = Some(map_entry);
        } else if let Some(record) = self.by_name.get_mut(&orchestrator) {
            let known = KnownWork {
                entry: map_entry,
                end_reason: row.over.as_deref().map(end_reason_from_name),
            };
            record.map.restore(row.name.clone(), known);
            record.uuid_by_entry.insert(row.name, row.id);
        }
        self.insert_work(row.id, work);
        Ok(())
    }

    /// Restores the backoffs. Returns the ends of the holds.
    pub fn restore_backoffs(
        &mut self,
        strikes: Vec<(Uuid, i32)>,
        now_ms: u64,
    ) -> impl Iterator<Item = (u64, Uuid)> {
        strikes.into_iter().filter_map(move |(uuid, strikes)| {
            let work = self.works.get_mut(&uuid)?;
            let strikes = u32::try_from(strikes).unwrap_or(0);
            work.backoff = Backoff::restored(strikes, now_ms, &BackoffPolicy::SERVICE);
            Some((work.backoff.held_until_ms()?, uuid))
        })
    }

    fn insert_work(&mut self, uuid: Uuid, work: Work) {
        self.works.insert(uuid, work);
        self.dirty.insert(uuid);
    }
}
