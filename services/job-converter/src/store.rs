//! All SQL of this service. Outcomes, leases and the state of work are rows. Waiting tasks are not
//! stored: they are the tasks without an outcome or a lease.
//!
//! Each subject has one file, and each statement writes the rows of a whole batch.

pub mod accounts;
pub mod applications;
pub mod backoffs;
pub mod cancelled_tasks;
pub mod history_cleanup;
pub mod idempotency_keys;
pub mod load_open_state;
pub mod orchestrators;
pub mod past_allocations;
pub mod processors;
pub mod settled_allocations;
pub mod tasks;
pub mod timeline;
pub mod work;

use sqlx::PgConnection;

/// Rows written by one batch.
#[derive(Default)]
pub struct Rows {
    /// Numbers of users that had none.
    pub accounts: Vec<accounts::AccountRow>,
    pub retired_accounts: Vec<accounts::RetiredAccountRow>,
    pub runners: Vec<work::RunnerRow>,
    pub deleted_runners: Vec<String>,
    pub submitted: work::Submitted,
    pub changed_services: Vec<work::ChangedServiceRow>,
    pub cancelled: Vec<work::CancelledRow>,
    pub ended: Vec<work::EndedRow>,
    /// Ended work whose rows are deleted.
    pub forgotten: Vec<uuid::Uuid>,
    pub outcomes: Vec<tasks::OutcomeRow>,
    pub attempts: Vec<tasks::AttemptRow>,
    /// Tasks that ended without a run.
    pub unrun: Vec<cancelled_tasks::UnrunRow>,
    pub task_stops: Vec<cancelled_tasks::TaskStopRow>,
    pub leases: Vec<tasks::LeaseRow>,
    pub deleted_leases: Vec<String>,
    pub settled: Vec<settled_allocations::SettledRow>,
    pub deleted_settled: Vec<String>,
    pub backoffs: Vec<backoffs::BackoffRow>,
    /// Ended allocations of jobs and their nodes.
    pub past: Vec<past_allocations::PastRow>,
    pub deleted_past: Vec<String>,
    pub processors: Vec<processors::ProcessorRow>,
    /// Last nodes of processors.
    pub last_hosts: Vec<processors::LastHostRow>,
    /// User and service whose last nodes are deleted.
    pub deleted_last_hosts: Vec<(String, String)>,
    pub events: Vec<timeline::EventRow>,
    pub keys: Vec<idempotency_keys::KeyRow>,
    pub deleted_keys: Vec<uuid::Uuid>,
    pub orchestrators: orchestrators::Changes,
    pub applications: Vec<applications::ApplicationRow>,
    pub deleted_applications: Vec<uuid::Uuid>,
    pub application_tasks: Vec<applications::ApplicationTaskRow>,
    /// Application and id of the task.
    pub deleted_application_tasks: Vec<(uuid::Uuid, String)>,
}

impl Rows {
    /// Returns the number of rows to write.
    pub fn row_count(&self) -> usize {
        let all = [
            self.accounts.len(),
            self.retired_accounts.len(),
            self.runners.len(),
            self.deleted_runners.len(),
            self.submitted.rows.len(),
            self.changed_services.len(),
            self.cancelled.len(),
            self.ended.len(),
            self.forgotten.len(),
            self.outcomes.len(),
            self.attempts.len(),
            self.unrun.len(),
            self.task_stops.len(),
            self.leases.len(),
            self.deleted_leases.len(),
            self.settled.len(),
            self.deleted_settled.len(),
            self.backoffs.len(),
            self.past.len(),
            self.deleted_past.len(),
            self.processors.len(),
            self.last_hosts.len(),
            self.deleted_last_hosts.len(),
            self.events.len(),
            self.keys.len(),
            self.deleted_keys.len(),
            self.orchestrators.row_count(),
            self.applications.len(),
            self.deleted_applications.len(),
            self.application_tasks.len(),
            self.deleted_application_tasks.len(),
        ];
        all.into_iter().sum()
    }
}

/// Writes a batch. Work is inserted before it is changed, and rows of ended work are deleted last.
pub async fn write(rows: Rows, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
    // A user may lose a number and get another within one batch.
    accounts::retire(tx, &rows.retired_accounts).await?;
    accounts::insert(tx, &rows.accounts).await?;
    // An id may be released and used again within one batch.
    applications::delete(tx, &rows.deleted_applications).await?;
    applications::upsert(tx, &rows.applications).await?;
    applications::upsert_tasks(tx, &rows.application_tasks).await?;
    applications::delete_tasks(tx, &rows.deleted_application_tasks).await?;
    idempotency_keys::insert(tx, &rows.keys).await?;
    work::insert_runners(tx, &rows.runners).await?;
    work::insert(tx, &rows.submitted).await?;
    work::update_services(tx, &rows.changed_services).await?;
    work::cancel(tx, &rows.cancelled).await?;
    tasks::insert_outcomes(tx, &rows.outcomes).await?;
    tasks::insert_attempts(tx, &rows.attempts).await?;
    cancelled_tasks::insert_unrun(tx, &rows.unrun).await?;
    cancelled_tasks::insert_stops(tx, &rows.task_stops).await?;
    tasks::upsert_leases(tx, &rows.leases).await?;
    tasks::delete_leases(tx, &rows.deleted_leases).await?;
    settled_allocations::insert(tx, &rows.settled).await?;
    settled_allocations::delete(tx, &rows.deleted_settled).await?;
    backoffs::upsert(tx, &rows.backoffs).await?;
    past_allocations::insert(tx, &rows.past).await?;
    past_allocations::delete(tx, &rows.deleted_past).await?;
    processors::upsert(tx, &rows.processors).await?;
    processors::upsert_last_hosts(tx, &rows.last_hosts).await?;
    processors::delete_last_hosts(tx, &rows.deleted_last_hosts).await?;
    timeline::insert(tx, &rows.events).await?;
    work::end(tx, &rows.ended).await?;
    work::delete_runners(tx, &rows.deleted_runners).await?;
    work::delete(tx, &rows.forgotten).await?;
    orchestrators::write(tx, rows.orchestrators).await?;
    idempotency_keys::delete(tx, &rows.deleted_keys).await
}
