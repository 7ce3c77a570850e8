//! `hayward preflight`: decides whether this version may replace the running one, and gives the
//! reasons. It changes nothing. (W17)

mod collect;
mod evaluate;
mod facts;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::json;

use crate::backup::admin_database::AdminAccess;
use crate::connection::Session;
use crate::output::{Renderer, Table, Tone, print, toned};
use evaluate::{Check, Verdict};

#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    pub access: AdminAccess,
    /// Folder of the backups. Default: `backups` of the state directory.
    #[arg(long, value_name = "DIR")]
    pub backups: Option<PathBuf>,
    /// Hours after which the newest backup is too old to change the tables without another one.
    #[arg(long, default_value_t = 24, value_name = "HOURS")]
    pub backup_hours: u32,
}

/// Prints the decision with all checks. Returns success if the upgrade may start.
pub async fn run(session: Session, arguments: Arguments) -> anyhow::Result<ExitCode> {
    let facts = Box::pin(collect::collect_facts(&session, &arguments)).await;
    let checks = evaluate::evaluate_checks(&facts);
    let may_upgrade = checks.iter().all(|check| check.verdict != Verdict::No);
    if session.out.json {
        session
            .out
            .json(&json!({ "go": may_upgrade, "checks": checks }))?;
    } else {
        print(&render(&checks, may_upgrade, &session.out.renderer()))?;
    }
    Ok(if may_upgrade {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn render(checks: &[Check], may_upgrade: bool, renderer: &Renderer) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let mut table = Table::new(["check", "", "found"]);
    for check in checks {
        let mark = match check.verdict {
            Verdict::Yes => toned("yes", Tone::Good),
            Verdict::Warning => toned("look", Tone::Warning),
            Verdict::No => toned("no", Tone::Bad),
        };
        table.push_row([check.name.into(), mark, (&check.found).into()]);
    }
    let decision = if may_upgrade {
        format!("yes: hayward {version} may take over here")
    } else {
        format!("no: hayward {version} is not to be started here before this is mended")
    };
    let actions = checks.iter().filter_map(|check| check.action.as_ref());
    let mut report = format!("{decision}\n\n{}", table.render(renderer));
    for action in actions {
        // Writing to a string never fails.
        let _ = writeln!(report, "do: {action}");
    }
    report
}
