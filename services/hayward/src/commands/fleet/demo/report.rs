//! Checks the results of the demonstration and prints them. The report has the digests, the
//! outcomes of tasks, and the quanta that each user received and was due.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context as _;
use hayward_job_converter_api::tasks::TaskList;
use sha2::{Digest as _, Sha256};
use tabled::builder::Builder;
use tabled::settings::Style;

use super::work::{DemoState, DemoWork, Owner};

/// Prints the tables. Returns true if all checks succeeded.
pub async fn check_and_print(work: &DemoWork, state: &DemoState) -> anyhow::Result<bool> {
    let mut all_correct = true;
    let mut table = Builder::new();
    table.push_record([
        "user",
        "class",
        "tasks",
        "seconds",
        "received",
        "due",
        "received/due",
        "digests",
    ]);
    for (owner, job) in work.owners.iter().zip(&state.jobs) {
        let faults = check_outcomes(owner).await?;
        for fault in &faults {
            println!("WRONG: {}: {fault}", owner.user);
        }
        all_correct &= faults.is_empty();
        let duration_ms = job.ended_at.map_or(0, |end| end.ms_since(job.submitted_at));
        let (received, due) = sum_ledger(state, owner);
        table.push_record([
            owner.user.to_owned(),
            owner.class.to_owned(),
            owner.files.len().to_string(),
            format_seconds(duration_ms),
            format!("{} quantum-s", format_seconds(received)),
            format!("{} quantum-s", format_seconds(due)),
            (received * 100)
                .checked_div(due)
                .map_or_else(|| "–".to_owned(), |percent| format!("{percent} %")),
            if faults.is_empty() {
                "all right".into()
            } else {
                format!("{} wrong", faults.len())
            },
        ]);
    }
    println!("\n{}", table.build().with(Style::rounded()));
    if all_correct {
        println!("Every digest matches, no task was lost, no outcome was recorded twice.");
    }
    Ok(all_correct)
}

fn format_seconds(ms: u64) -> String {
    format!("{}.{}", ms / 1000, ms % 1000 / 100)
}

/// Returns the quantum-milliseconds that the owner received, and those that were due.
fn sum_ledger(state: &DemoState, owner: &Owner) -> (u64, u64) {
    let rows = state.shares.iter().flat_map(|shares| &shares.ledger);
    rows.filter(|row| row.user.as_str() == owner.user && row.class == owner.class)
        .fold((0, 0), |(received, due), row| {
            (received + row.received_quantum_ms, due + row.due_quantum_ms)
        })
}

/// Returns the faults in the outcomes of one job. Each task has one file, and its number is the
/// index of the file.
async fn check_outcomes(owner: &Owner) -> anyhow::Result<Vec<String>> {
    let mut digests: BTreeMap<u64, String> = BTreeMap::new();
    let mut faults = Vec::new();
    let mut path = format!("/v1/jobs/{}/tasks?limit=1000", owner.job);
    loop {
        let page: TaskList = owner.client.get(&path).await?;
        for task in page.tasks {
            if !task.succeeded {
                faults.push(format!("task {} failed: {}", task.task, task.output.trim()));
            }
            let digest = task.output.split_whitespace().next().unwrap_or_default();
            // `sha256sum` prints a backslash before the digest when the file name has one.
            let digest = digest.trim_start_matches('\\').to_owned();
            if digests.insert(task.task, digest).is_some() {
                faults.push(format!("task {} has two outcomes", task.task));
            }
        }
        match page.next_cursor {
            Some(cursor) => {
                path = format!("/v1/jobs/{}/tasks?limit=1000&cursor={cursor}", owner.job);
            }
            None => break,
        }
    }
    for (number, file) in owner.files.iter().enumerate() {
        match digests.remove(&(number as u64)) {
            None => faults.push(format!("task {number} was lost")),
            Some(digest) if digest != sha256(file)? => {
                faults.push(format!(
                    "the digest of {} is wrong: {digest:?}",
                    file.display()
                ));
            }
            Some(_) => {}
        }
    }
    faults.extend(
        digests
            .keys()
            .map(|task| format!("task {task} was never submitted")),
    );
    Ok(faults)
}

fn sha256(file: &Path) -> anyhow::Result<String> {
    let bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(&bytes) {
        write!(text, "{byte:02x}").expect("writing to a string never fails");
    }
    Ok(text)
}
