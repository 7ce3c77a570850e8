//! Dry runs of commands that change applications or orchestrators. They run on a copy of the one
//! application or orchestrator they concern, since the working set is too large to copy (A10).
//!
//! A panic leaves the copy in place. The working set is then loaded again, as after every panic.

use hayward_job_converter_application_protocol::ids::AppId;
use hayward_publication::committer::{Batch, Moment};

use super::Ledger;
use crate::applications::Act;
use crate::orchestrators::commands;
use crate::store::Rows;

impl Ledger {
    pub(super) fn try_on(
        &mut self,
        of: &AppId,
        act: Act,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let copy = self.applications.apart(of);
        let all = std::mem::replace(&mut self.applications, copy);
        self.act_on_applications(act, moment, batch);
        self.applications = all;
    }

    pub(super) fn try_to_orchestrate(
        &mut self,
        act: commands::Act,
        moment: &Moment,
        batch: &mut Batch<Rows>,
    ) {
        let copy = self.orchestrators.apart(act.of());
        let all = std::mem::replace(&mut self.orchestrators, copy);
        self.orchestrate(act, moment, batch);
        self.orchestrators = all;
    }
}
