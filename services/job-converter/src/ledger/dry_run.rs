//! What is tried is done to a copy, by the code that does it (A10). Of all work there is too much
//! to copy it, so one application is copied, or one orchestrator with what it has.
//!
//! A panic in between leaves the copy in place of the rest, and the working set is read again, as
//! after every panic (F4).

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
