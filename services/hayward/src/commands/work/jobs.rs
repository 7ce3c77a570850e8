//! `hayward jobs`: lists the jobs.

use crate::commands::work::{self, Listing};
use crate::connection::Session;

pub async fn run(session: Session, listing: Listing) -> anyhow::Result<()> {
    work::print_list(session, "jobs", &listing).await
}
