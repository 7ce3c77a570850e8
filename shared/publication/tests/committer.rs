//! The committer with a real PostgreSQL. A confirmed change is durable, an unfenced change is not
//! written, and uncommitted changes are not visible.

#[path = "committer/audit.rs"]
mod audit;
#[path = "committer/commits.rs"]
mod commits;
#[path = "committer/database_went_back.rs"]
mod database_went_back;
#[path = "committer/fixture.rs"]
mod fixture;
#[path = "committer/leadership.rs"]
mod leadership;
