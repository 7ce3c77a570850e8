//! Dry runs of commands that change applications or orchestrators. They run on a copy of the one
//! application or orchestrator they concern, since the working set is too large to copy (A10).
//!
//! A panic leaves the copy in place. The working set is then loaded again, as after any panic.

use hayward_job_converter_application_protocol::ids::AppId;
use hayward_publication::committer::{Batch, Moment};

use super::Ledger;
use crate::applications::ApplicationCommand;
use crate::orchestrators::commands;
use crate::store::Rows;

impl Ledger {
    pub(super) fn dry_run_applications(
        &mut self,
        id: &AppId,
        command: ApplicationCommand,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let copy = self.applications.copy_of_one(id);
        let original = std::mem::replace(&mut self.applications, copy);
        self.run_application_command(command, moment, batch);
        self.applications = original;
    }

    pub(super) fn dry_run_orchestrators(
        &mut self,
        command: commands::OrchestratorCommand,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let copy = self.orchestrators.copy_of_one(command.orchestrator());
        let original = std::mem::replace(&mut self.orchestrators, copy);
        self.run_orchestrator_command(command, moment, batch);
        self.orchestrators = original;
    }
}
