//! `hayward cancel ID…`: cancels pieces of work.

use hayward_job_converter_api::WorkView;
use hayward_vocabulary::WorkId;

use crate::commands::work;
use crate::connection::{Role, Service, Session};
use crate::output::format::enum_text;

#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// Jobs, services or reservations.
    #[arg(value_name = "ID", required = true)]
    pub ids: Vec<WorkId>,
}

/// Cancels each piece of work. The first error ends the command, and previous cancellations stay in
/// force.
pub async fn run(session: Session, arguments: Arguments) -> anyhow::Result<()> {
    let client = session.client(Service::JobConverter, Role::User)?;
    for id in &arguments.ids {
        let response = work::cancel(&client, id).await?;
        session.out.print_response(response, |view: &WorkView, _| {
            format!("{} is {}\n", view.id, enum_text(&view.state))
        })?;
    }
    Ok(())
}
