//! `hayward restore --accept-loss`: accepts the database after it went back in time. The services
//! may run. They write nothing until the loss is accepted, and continue afterwards. (R9)

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::bail;
use serde_json::json;
use sqlx::Connection as _;

use super::{Arguments, execute_in_one_transaction};
use crate::backup::admin_database::AdminDatabase;
use crate::backup::revision_histories::{
    History, Writers, allow_writes_statement, new_history_statements, read_histories, read_writers,
};
use crate::output::{Output, print};
use crate::prepare::SERVICES;

pub async fn run(out: Output, state: &Path, arguments: &Arguments) -> anyhow::Result<()> {
    let admin = arguments.access.open(state).await?;
    let result = accept(&admin, arguments.dry_run).await;
    admin.close().await;
    let before = result?;
    if out.json {
        return out.json(&json!({ "done": !arguments.dry_run, "before": before }));
    }
    let mut text = String::new();
    for (schema, history) in &before {
        let reason = history.went_back.as_deref();
        let reason = reason
            .map(|reason| format!(": {reason}"))
            .unwrap_or_default();
        // Writing to a string never fails.
        let _ = writeln!(text, "{schema} at revision {}{reason}", history.revision);
    }
    text.push_str(if arguments.dry_run {
        "would count from now on, as it is: nothing was changed\n"
    } else {
        "counts from now on, as it is; services that run go on by themselves, and what was \
         started for what is lost is ended\n"
    });
    print(&text)
}

/// Begins a new history for each service, and lets it write again.
async fn accept(admin: &AdminDatabase, dry_run: bool) -> anyhow::Result<BTreeMap<String, History>> {
    let mut connection = admin.connect().await?;
    let before = read_histories(&mut connection).await?;
    if before.len() < SERVICES.len() {
        bail!("it is not the database of a fleet: schemas are missing");
    }
    if let Some(reason) = refusal(&before, &read_writers(&mut connection).await?) {
        bail!("nothing was changed: {reason}");
    }
    if !dry_run {
        let statements: Vec<String> = SERVICES
            .iter()
            .flat_map(|(_, schema)| {
                let statements = new_history_statements(schema.name, 0).into_iter();
                statements.chain([allow_writes_statement(schema.name)])
            })
            .collect();
        execute_in_one_transaction(&mut connection, &statements).await?;
    }
    connection.close().await?;
    Ok(before)
}

/// Returns the reason to refuse. A fleet whose services write has no loss to accept.
fn refusal(before: &BTreeMap<String, History>, writers: &Writers) -> Option<String> {
    let has_gone_back = before.values().any(|history| history.went_back.is_some());
    let lease = writers.leases.iter().next();
    let (schema, holder) = lease.filter(|_| !has_gone_back)?;
    Some(format!(
        "no service reports that the database went back in time: {schema} is led by {holder} and \
         writes"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepting_a_loss_is_refused_while_services_write() {
        let history = |went_back: Option<&str>| {
            let history = History {
                lineage: "a".to_owned(),
                revision: 3,
                epoch: 1,
                went_back: went_back.map(str::to_owned),
            };
            BTreeMap::from([("blocklist".to_owned(), history)])
        };
        let writers = Writers {
            leases: BTreeMap::from([("node_status".to_owned(), "host".to_owned())]),
            connections: 3,
        };
        assert!(refusal(&history(None), &writers).is_some());
        // Some services have noticed the loss and others have not. The operator's decision is
        // needed then.
        assert_eq!(refusal(&history(Some("older")), &writers), None);
        assert_eq!(refusal(&history(None), &Writers::default()), None);
    }
}
