//! All SQL of this service. Outcomes, leases and the state of work are rows. Waiting tasks are not
//! stored: they are the tasks without an outcome or a lease.
//!
//! Each subject has one file, and each statement writes the rows of a whole batch.

pub mod applications;
pub mod history;
pub mod keys;
pub mod load;
pub mod orchestrators;
pub mod past;
pub mod processors;
pub mod settled;
pub mod sweep;
pub mod tasks;
pub mod work;

use sqlx::PgConnection;

/// Rows written by one batch.
#[derive(Default)]
pub struct Rows {
    pub runners: Vec<work::RunnerRow>,
    pub runners_gone: Vec<String>,
    pub submitted: work::Submitted,
    pub amended: Vec<work::AmendedRow>,
    pub cancelled: Vec<work::CancelledRow>,
    pub ended: Vec<work::EndedRow>,
    pub forgotten: Vec<uuid::Uuid>,
    pub outcomes: Vec<tasks::OutcomeRow>,
    pub attempts: Vec<tasks::AttemptRow>,
    pub leases: Vec<tasks::LeaseRow>,
    pub leases_gone: Vec<String>,
    pub settled: Vec<settled::SettledRow>,
    pub settled_gone: Vec<String>,
    pub brakes: Vec<settled::BrakeRow>,
    pub past: Vec<past::PastRow>,
    pub past_gone: Vec<String>,
    pub processors: Vec<processors::ProcessorRow>,
    pub localities: Vec<processors::LocalityRow>,
    pub localities_gone: Vec<(String, String)>,
    pub events: Vec<history::EventRow>,
    pub keys: Vec<keys::KeyRow>,
    pub keys_gone: Vec<uuid::Uuid>,
    pub orchestrators: orchestrators::Changes,
    pub applications: Vec<applications::HeadText>,
    pub applications_gone: Vec<uuid::Uuid>,
    pub application_tasks: Vec<applications::TaskText>,
    pub application_tasks_gone: Vec<(uuid::Uuid, String)>,
}

impl Rows {
    /// Returns the number of rows to write.
    pub fn weight(&self) -> usize {
        let all = [
            self.runners.len(),
            self.runners_gone.len(),
            self.submitted.rows.len(),
            self.amended.len(),
            self.cancelled.len(),
            self.ended.len(),
            self.forgotten.len(),
            self.outcomes.len(),
            self.attempts.len(),
            self.leases.len(),
            self.leases_gone.len(),
            self.settled.len(),
            self.settled_gone.len(),
            self.brakes.len(),
            self.past.len(),
            self.past_gone.len(),
            self.processors.len(),
            self.localities.len(),
            self.localities_gone.len(),
            self.events.len(),
            self.keys.len(),
            self.keys_gone.len(),
            self.orchestrators.weight(),
            self.applications.len(),
            self.applications_gone.len(),
            self.application_tasks.len(),
            self.application_tasks_gone.len(),
        ];
        all.into_iter().sum()
    }
}

/// Writes a batch. Work is inserted before it is changed, and rows of ended work are deleted last.
pub async fn write(rows: Rows, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
    // An id may be released and used again within one batch.
    applications::delete(tx, &rows.applications_gone).await?;
    applications::put(tx, &rows.applications).await?;
    applications::put_tasks(tx, &rows.application_tasks).await?;
    applications::delete_tasks(tx, &rows.application_tasks_gone).await?;
    keys::insert(tx, &rows.keys).await?;
    work::insert_runners(tx, &rows.runners).await?;
    work::insert(tx, &rows.submitted).await?;
    work::amend(tx, &rows.amended).await?;
    work::cancel(tx, &rows.cancelled).await?;
    tasks::insert_outcomes(tx, &rows.outcomes).await?;
    tasks::insert_attempts(tx, &rows.attempts).await?;
    tasks::put_leases(tx, &rows.leases).await?;
    tasks::delete_leases(tx, &rows.leases_gone).await?;
    settled::insert_settled(tx, &rows.settled).await?;
    settled::delete_settled(tx, &rows.settled_gone).await?;
    settled::put_brakes(tx, &rows.brakes).await?;
    past::insert(tx, &rows.past).await?;
    past::delete(tx, &rows.past_gone).await?;
    processors::put(tx, &rows.processors).await?;
    processors::put_locality(tx, &rows.localities).await?;
    processors::forget_locality(tx, &rows.localities_gone).await?;
    history::insert(tx, &rows.events).await?;
    work::end(tx, &rows.ended).await?;
    work::delete_runners(tx, &rows.runners_gone).await?;
    work::forget(tx, &rows.forgotten).await?;
    orchestrators::write(tx, rows.orchestrators).await?;
    keys::delete(tx, &rows.keys_gone).await
}
