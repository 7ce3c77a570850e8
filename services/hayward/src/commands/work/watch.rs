//! `hayward watch nodes` shows the current state of the nodes. `hayward watch ID` shows a bar until
//! the end of the work.
//!
//! Each request is a long poll that returns at the end of the work or after a second. The command
//! tolerates a short outage of the service.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use hayward_job_converter_api::{WorkState, WorkView};
use hayward_service::{Client, ClientError};
use hayward_vocabulary::WorkId;
use indicatif::{ProgressBar, ProgressStyle};

use crate::commands::work;
use crate::connection::work_routes::route_of_work;
use crate::connection::{Role, Service, Session};
use crate::output::format::{enum_text, format_count, format_duration, sanitize};
use crate::output::{Renderer, Tone, note, print};

/// Time that a service may be down before the watcher gives up.
const OUTAGE_TIMEOUT: Duration = Duration::from_mins(1);
/// Interval between printed lines when there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(2);

/// The work to follow.
#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// Id of a job, a service or a reservation, as `submit` printed it; or `nodes` for the table of
    /// nodes.
    #[arg(value_name = "ID|nodes")]
    pub target: WorkId,
}

/// Condition that ends the wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// The work has ended.
    Ended,
    /// The work runs or has ended.
    Running,
}

pub async fn run(session: Session, arguments: Arguments) -> anyhow::Result<ExitCode> {
    // Ids of work have a prefix, so `nodes` is not an id.
    if arguments.target.as_str() == "nodes" {
        return crate::commands::operate::nodes::watch::watch_nodes(&session).await;
    }
    let client = session.client(Service::JobConverter, Role::User)?;
    let view = follow(&client, &arguments.target, Until::Ended).await?;
    report_end(&session, &client, &view).await
}

/// Prints the end of the work. Returns success for a completed job, or for other work that runs.
pub async fn report_end(
    session: &Session,
    client: &Client,
    view: &WorkView,
) -> anyhow::Result<ExitCode> {
    if session.out.json {
        session
            .out
            .json(&work::fetch_json(client, &view.id).await?)?;
    } else {
        print(&end_text(view, &session.out.renderer()))?;
    }
    Ok(exit_code(view))
}

pub fn exit_code(view: &WorkView) -> ExitCode {
    let is_success = matches!(view.state, WorkState::Completed | WorkState::Running);
    if is_success {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Describes the end in one line. For a failure it adds the command that shows more.
pub fn end_text(view: &WorkView, renderer: &Renderer) -> String {
    let (state, tone) = match view.state {
        WorkState::Completed | WorkState::Running => (enum_text(&view.state), Tone::Good),
        state => (enum_text(&state), Tone::Bad),
    };
    let mut text = renderer.paint(&state, tone);
    if let Some(tasks) = view.tasks {
        let tasks_text = if tasks.succeeded == tasks.total {
            format!(": {}", format_count(tasks.total, "task"))
        } else {
            format!(
                ": {} of {} succeeded",
                tasks.succeeded,
                format_count(tasks.total, "task")
            )
        };
        text.push_str(&tasks_text);
    }
    if let Some(ended_at) = view.ended_at {
        let _ = write!(
            text,
            " in {}",
            format_duration(ended_at.ms_since(view.submitted_at))
        );
    }
    if let Some(reason) = view.reason.as_ref().filter(|_| tone == Tone::Bad) {
        let _ = write!(text, "; {}", sanitize(reason));
    }
    text.push('\n');
    if view.state == WorkState::Failed {
        let _ = writeln!(
            text,
            "Output of failed tasks: hayward tasks --failed {}",
            view.id
        );
    }
    text
}

/// Shows the progress until the condition holds or the work has ended. Returns the last state.
pub async fn follow(client: &Client, id: &WorkId, until: Until) -> anyhow::Result<WorkView> {
    let route = route_of_work(id)?;
    let condition = if until == Until::Running {
        "running"
    } else {
        "final"
    };
    let path = format!("{route}?wait=1&until={condition}");
    let mut display = ProgressDisplay::new();
    let mut last_response = Instant::now();
    loop {
        let view: WorkView = match client.get(&path).await {
            Ok(view) => view,
            Err(error) if error.retryable() && last_response.elapsed() < OUTAGE_TIMEOUT => {
                display.show_error(&error);
                tokio::time::sleep(Duration::from_millis(500)).await;
                continue;
            }
            Err(error) => {
                display.end();
                return Err(error.into());
            }
        };
        last_response = Instant::now();
        display.show(&view);
        let is_running = until == Until::Running && view.state == WorkState::Running;
        if view.state.is_final() || is_running {
            display.end();
            return Ok(view);
        }
    }
}

/// Display of the progress: a bar on a terminal, otherwise one line for each change.
struct ProgressDisplay {
    bar: ProgressBar,
    /// The last printed line, and the time of its printing.
    last_line: Option<(String, Instant)>,
}

impl ProgressDisplay {
    fn new() -> Self {
        Self {
            bar: ProgressBar::no_length(),
            last_line: None,
        }
    }

    fn show(&mut self, view: &WorkView) {
        let text = progress_line(view);
        if self.bar.is_hidden() {
            return self.print_line(text);
        }
        if let Some(tasks) = view.tasks {
            if self.bar.length().is_none() {
                self.bar
                    .set_style(bar_style("{wide_bar} {pos}/{len} {msg} {eta}"));
                self.bar.set_length(tasks.total);
            }
            self.bar.set_position(tasks.succeeded + tasks.failed);
            self.bar.set_message(sanitize(&short_state(view)));
        } else {
            self.bar.set_style(bar_style("{spinner} {msg} {elapsed}"));
            self.bar.set_message(text);
            self.bar.tick();
        }
    }

    fn show_error(&mut self, error: &ClientError) {
        if self.bar.is_hidden() {
            self.print_line(format!("{error}; trying on"));
        } else {
            self.bar.set_message(format!("{error}; trying on"));
        }
    }

    fn print_line(&mut self, text: String) {
        let is_due = self
            .last_line
            .as_ref()
            .is_none_or(|(line, at)| *line != text && at.elapsed() >= LINE_INTERVAL);
        if is_due {
            note(&text);
            self.last_line = Some((text, Instant::now()));
        }
    }

    fn end(&self) {
        self.bar.finish_and_clear();
    }
}

fn bar_style(template: &str) -> ProgressStyle {
    // The default style replaces an invalid template.
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// Describes the state, and the reason of a wait.
fn short_state(view: &WorkView) -> String {
    match (&view.reason, view.state) {
        (Some(reason), WorkState::Waiting) => {
            format!("waiting: {}", work::shorten(reason, work::REASON_WIDTH))
        }
        _ => enum_text(&view.state),
    }
}

fn progress_line(view: &WorkView) -> String {
    let tasks = view
        .tasks
        .map(|tasks| format!("{}/{} ", tasks.succeeded + tasks.failed, tasks.total));
    sanitize(&format!(
        "{}{}",
        tasks.unwrap_or_default(),
        short_state(view)
    ))
}

#[cfg(test)]
mod tests {
    use hayward_job_converter_api::TaskCounts;
    use hayward_vocabulary::{Size, Timestamp, UserName, WorkKind};

    use super::*;

    #[test]
    fn the_end_text_has_count_duration_and_the_next_command() {
        let at = Timestamp::from_unix_ms(1_795_257_720_000);
        let view = |state, succeeded, failed, reason: Option<&str>| WorkView {
            id: WorkId::new("job_1").unwrap(),
            kind: WorkKind::Job,
            name: "n".into(),
            submitted_by: None,
            user: UserName::new("ada").unwrap(),
            class: None,
            queue: None,
            state,
            reason: reason.map(String::from),
            refusal: None,
            submitted_at: at,
            ended_at: Some(at.plus_ms(3_200)),
            size: Size::default(),
            tasks: Some(TaskCounts {
                total: 4,
                succeeded,
                failed,
                ..TaskCounts::default()
            }),
            usage: None,
            processes: Vec::new(),
            when_unreachable: hayward_vocabulary::WhenUnreachable::default(),
            deployment: None,
            disruption_limit: None,
            labels: std::collections::BTreeMap::new(),
        };
        let renderer = Renderer {
            colour: false,
            now: at,
        };
        let completed = view(WorkState::Completed, 4, 0, None);
        assert_eq!(
            end_text(&completed, &renderer),
            "completed: 4 tasks in 3.2s\n"
        );
        assert_eq!(exit_code(&completed), ExitCode::SUCCESS);
        let failed = view(WorkState::Failed, 3, 1, Some("1 of 4 tasks failed"));
        assert_eq!(
            end_text(&failed, &renderer),
            "failed: 3 of 4 tasks succeeded in 3.2s; 1 of 4 tasks failed\n\
             Output of failed tasks: hayward tasks --failed job_1\n"
        );
        assert_eq!(exit_code(&failed), ExitCode::FAILURE);
        let waiting = WorkView {
            ended_at: None,
            ..view(WorkState::Waiting, 0, 0, Some("no\u{1b}room"))
        };
        assert_eq!(progress_line(&waiting), "0/4 waiting: no\u{fffd}room");
    }
}
