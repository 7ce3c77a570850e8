//! Follows the output of a job, a service, an application or a worker pool, across all instances,
//! retries and nodes. It ends after the final output of the last process.
//!
//! The cursor of the responses is the only state. After a restart of the service, the same request
//! continues.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use hayward_container_manager_api::{ContainerEntry, WorkLogChunk, WorkLogs};
use hayward_job_converter_api::WorkView;
use hayward_job_converter_api::applications::{ApplicationView, TaskAccepted};
use hayward_rm_scheduler_api::worker_pools::{PoolStatus, PoolView};
use hayward_service::{Client, ClientError, Code};
use hayward_vocabulary::{AllocationId, NodeName, WorkId};
use serde_json::Value;

use super::Arguments;
use crate::commands::work::apps;
use crate::connection::work_routes::route_of_work;
use crate::connection::{Role, Service, Session};
use crate::output::{format, note, parse_response, print};

/// Seconds of a long poll. If the last process ended long before its work, a long poll also delays
/// noticing the end of the work.
const LONG_POLL_SECONDS: u64 = 5;
/// Seconds to wait for final output after the end of the work. Output and the end arrive
/// independently.
const FINAL_POLL_SECONDS: u64 = 1;
/// Seconds between checks for the end of the work, while none of its processes run.
const POLL_SECONDS: u64 = 1;
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of polls in a row without output, after the end of the work. The same limit
/// applies to polls for work that no service knows.
const MAX_IDLE_POLLS: u32 = 5;

/// Number of characters at the end of an id that a label shows.
const ID_SUFFIX_LENGTH: usize = 6;

/// The followed work.
pub struct Source {
    work: WorkId,
    /// The only process to follow. `None` means all processes.
    only_process: Option<AllocationId>,
    /// Display names of the tasks of an application.
    names: BTreeMap<WorkId, String>,
    end_condition: EndCondition,
}

/// The event that ends the followed work.
pub enum EndCondition {
    /// The job or service has ended.
    Work,
    /// The worker pool is stopped.
    Pool,
    /// The application with this id has ended. With a task, only the end of that task counts.
    Application(String, Option<String>),
    /// The last process of the work has ended.
    LastProcess,
}

impl Source {
    pub fn new(work: WorkId, end_condition: EndCondition) -> Self {
        Self {
            work,
            only_process: None,
            names: BTreeMap::new(),
            end_condition,
        }
    }

    /// Follows one process of a piece of work.
    pub fn for_process(work: WorkId, id: AllocationId) -> Self {
        Self {
            only_process: Some(id),
            ..Self::new(work, EndCondition::LastProcess)
        }
    }

    /// Follows an application, or one task of it.
    pub async fn for_application(
        jobs: &Client,
        id: &str,
        task: Option<&str>,
    ) -> anyhow::Result<Self> {
        let path = format!("/v1/applications/{id}");
        let end_condition =
            |task: Option<&str>| EndCondition::Application(id.to_owned(), task.map(str::to_owned));
        if let Some(task) = task {
            let accepted: TaskAccepted = jobs.get(&format!("{path}/tasks/{task}")).await?;
            return Ok(Self::new(accepted.task.work, end_condition(Some(task))));
        }
        let view: Result<ApplicationView, ClientError> = jobs.get(&path).await;
        let view = view.map_err(|error| with_unknown_work(error, id))?;
        let tasks = view.tasks.iter().map(|it| (it.work.clone(), it.id.clone()));
        let names: BTreeMap<WorkId, String> = tasks.collect();
        let groups = view.task_groups.iter().map(|it| &it.work);
        // The works of all tasks and groups have the application as their parent.
        let any_work = names.keys().chain(groups).next();
        let any_work = any_work.with_context(|| format!("application {id} has no tasks yet"))?;
        Ok(Self {
            names: names.clone(),
            ..Self::new(any_work.parent(), end_condition(None))
        })
    }

    /// Removes the output of processes that are not followed.
    fn retain_followed(&self, logs: &mut WorkLogs) {
        if let Some(only) = &self.only_process {
            logs.chunks.retain(|it| it.container == *only);
            logs.ended.retain(|it| it.id == *only);
        }
    }

    /// Returns true if the response shows the end of the last followed process, and this is the end
    /// condition. Other end conditions need a separate request.
    fn has_last_process_ended(&self, logs: &WorkLogs) -> bool {
        let has_ended_process = !logs.ended.is_empty();
        matches!(self.end_condition, EndCondition::LastProcess)
            && has_ended_process
            && (self.only_process.is_some() || logs.live == 0)
    }
}

/// Replaces the error for an id that no application has by one about unknown work, because the user
/// may have meant any kind of work. Other errors stay.
fn with_unknown_work(error: ClientError, id: &str) -> anyhow::Error {
    match error.problem() {
        Some(problem) if problem.code == Code::NotFound => anyhow::anyhow!("unknown work {id}"),
        _ => error.into(),
    }
}

/// Returns how long the next request may wait for output.
fn next_wait_seconds(has_ended: bool, live_processes: u64) -> u64 {
    match (has_ended, live_processes) {
        (true, _) => FINAL_POLL_SECONDS,
        (false, 0) => POLL_SECONDS,
        (false, _) => LONG_POLL_SECONDS,
    }
}

/// Prints the output of the source. Without `--follow`, ends after the existing output.
pub async fn run(
    session: &Session,
    jobs: &Client,
    source: &Source,
    arguments: &Arguments,
) -> anyhow::Result<()> {
    let containers = session.client(Service::ContainerManager, Role::User)?;
    // This request also fails for unknown work.
    let mut has_ended = has_work_ended(session, jobs, source).await?;
    let mut path = first_path(arguments, &source.work);
    let (mut wait_seconds, mut idle_polls, mut unknown_polls, mut was_live) = (0, 0, 0, false);
    let mut lines = OutputLines {
        names: source.names.clone(),
        ..OutputLines::default()
    };
    loop {
        let query = format!("{path}wait={wait_seconds}");
        let Some(mut logs) = read_logs(&containers, &query, arguments.follow).await? else {
            continue;
        };
        let has_output = !(logs.chunks.is_empty() && logs.ended.is_empty());
        source.retain_followed(&mut logs);
        has_ended = has_ended || source.has_last_process_ended(&logs);
        if session.out.json {
            session.out.json(&serde_json::to_value(&logs)?)?;
        } else {
            print(&super::clean_for_terminal(&lines.format(&logs)))?;
        }
        path = format!("/v1/logs/{}?cursor={}&", source.work, logs.cursor);
        idle_polls = if has_output { 0 } else { idle_polls + 1 };
        if !has_output
            && (!arguments.follow || (has_ended && (logs.live == 0 || idle_polls > MAX_IDLE_POLLS)))
        {
            break;
        }
        if !arguments.follow {
            continue;
        }
        if !has_output || logs.live == 0 {
            has_ended = has_ended || has_work_ended(session, jobs, source).await?;
        }
        was_live = was_live || has_output || logs.live > 0;
        unknown_polls += 1;
        if has_ended || was_live || is_known(session, source).await? {
            unknown_polls = 0;
        }
        anyhow::ensure!(
            unknown_polls <= MAX_IDLE_POLLS,
            "unknown work {}: it has no process, no verdict and no stored output",
            source.work
        );
        wait_seconds = next_wait_seconds(has_ended, logs.live);
    }
    if !session.out.json {
        print(&super::clean_for_terminal(&lines.finish_all()))?;
    }
    Ok(())
}

/// Sends one request. With `follow`, a temporary failure is not an error: the function pauses and
/// returns `None`, and the caller repeats the request.
async fn read_logs(
    containers: &Client,
    query: &str,
    follow: bool,
) -> anyhow::Result<Option<WorkLogs>> {
    match containers
        .get_with_timeout::<Value>(query, RESPONSE_TIMEOUT)
        .await
    {
        Ok(response) => Ok(Some(parse_response(response)?)),
        Err(fault) if follow && fault.retryable() => {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok(None)
        }
        Err(fault) => Err(fault.into()),
    }
}

fn first_path(arguments: &Arguments, work: &WorkId) -> String {
    let tail = arguments.tail.map(|lines| format!("tail={lines}&"));
    let since = arguments.since.map(|at| format!("since={at}&"));
    let parts = [tail, since].map(Option::unwrap_or_default).concat();
    format!("/v1/logs/{work}?{parts}")
}

/// Returns true if the scheduler knows the work, because such work may still start processes.
async fn is_known(session: &Session, source: &Source) -> anyhow::Result<bool> {
    // An application as a whole has no verdict of its own.
    if !matches!(source.end_condition, EndCondition::LastProcess)
        || source.work == source.work.parent()
    {
        return Ok(true);
    }
    let scheduler = session.client(Service::RmScheduler, Role::User)?;
    let path = format!("/v1/verdicts/{}", source.work);
    let verdict = scheduler.get::<Value>(&path).await;
    let fault = verdict.as_ref().err().and_then(ClientError::problem);
    Ok(fault.is_none_or(|fault| fault.code != Code::NotFound))
}

/// Asks the service of the work whether the work has ended. For workers of a pool, the state of the
/// worker pool decides.
async fn has_work_ended(session: &Session, jobs: &Client, source: &Source) -> anyhow::Result<bool> {
    let response = match &source.end_condition {
        EndCondition::LastProcess => Ok(false),
        EndCondition::Pool => {
            let pools = session.client(Service::RmScheduler, Role::Operator)?;
            let path = format!("/v1/pools/{}", source.work.parent());
            let pool = pools.get::<PoolView>(&path).await;
            pool.map(|pool| pool.status == PoolStatus::Stopped)
        }
        EndCondition::Work => {
            let view = jobs.get::<WorkView>(&route_of_work(&source.work)?).await;
            view.map(|view| view.state.is_final())
        }
        EndCondition::Application(id, None) => {
            let view = jobs.get(&format!("/v1/applications/{id}")).await;
            view.map(|view| apps::has_ended(&view))
        }
        EndCondition::Application(id, Some(task)) => {
            let path = format!("/v1/applications/{id}/tasks/{task}");
            let task = jobs.get::<TaskAccepted>(&path).await;
            task.map(|it| apps::is_final(&it.task.state))
        }
    };
    match response {
        Ok(has_ended) => Ok(has_ended),
        // The service may be down for a moment. The next check asks again.
        Err(fault) if fault.retryable() => Ok(false),
        Err(fault) => Err(fault.into()),
    }
}

/// Output by process, split into lines that are never mixed.
#[derive(Default)]
struct OutputLines {
    /// Display names of tasks.
    names: BTreeMap<WorkId, String>,
    processes: BTreeMap<AllocationId, ProcessOutput>,
}

struct ProcessOutput {
    /// Beginning of each line, if there are several processes.
    label: String,
    /// Last line of the output, as long as its line break is missing.
    partial_line: String,
}

impl OutputLines {
    /// Returns the complete lines. With several processes, each line begins with the label of its
    /// process.
    fn format(&mut self, logs: &WorkLogs) -> String {
        let mut text = String::new();
        for piece in &logs.chunks {
            self.add_piece(piece, &mut text);
        }
        for entry in &logs.ended {
            self.add_end(entry, &mut text);
        }
        // The note belongs to the first response only.
        if logs.left_out > 0 && self.processes.len() <= logs.chunks.len() {
            note(&format!(
                "{} not shown",
                format::format_count(logs.left_out, "older process")
            ));
        }
        text
    }

    fn add_piece(&mut self, piece: &WorkLogChunk, text: &mut String) {
        let label = self.label(&piece.work, &piece.container, &piece.node);
        let new_process = || ProcessOutput {
            label,
            partial_line: String::new(),
        };
        self.processes
            .entry(piece.container.clone())
            .or_insert_with(new_process);
        if piece.missed_bytes > 0 {
            self.finish(&piece.container, text);
            let lost = format::format_count(piece.missed_bytes, "byte");
            note(&format!("{}: {lost} no longer stored", piece.container));
        }
        let has_several = self.processes.len() > 1;
        let Some(process) = self.processes.get_mut(&piece.container) else {
            return;
        };
        for part in piece.text.split_inclusive('\n') {
            process.partial_line.push_str(part);
            if part.ends_with('\n') {
                process.move_line_to(has_several, text);
            }
        }
    }

    fn add_end(&mut self, entry: &ContainerEntry, text: &mut String) {
        self.finish(&entry.id, text);
        if let Some(exit) = &entry.exit {
            let exit_text = format::sanitize(&format::format_exit(exit));
            let label = self.label(&entry.work, &entry.id, &entry.node);
            note(&format!("{label}: {exit_text}"));
        }
    }

    /// Completes the last line of a process, and adds it to the text.
    fn finish(&mut self, id: &AllocationId, text: &mut String) {
        let has_several = self.processes.len() > 1;
        if let Some(process) = self.processes.get_mut(id)
            && !process.partial_line.is_empty()
        {
            process.partial_line.push('\n');
            process.move_line_to(has_several, text);
        }
    }

    fn label(&self, work: &WorkId, id: &AllocationId, node: &NodeName) -> String {
        match self.names.get(work) {
            Some(name) => format!("{name} on {node}"),
            None => default_label(work, id, node),
        }
    }

    fn finish_all(&mut self) -> String {
        let mut text = String::new();
        let ids: Vec<AllocationId> = self.processes.keys().cloned().collect();
        for id in ids {
            self.finish(&id, &mut text);
        }
        text
    }
}

impl ProcessOutput {
    /// Moves the current line to the text.
    fn move_line_to(&mut self, has_several: bool, text: &mut String) {
        if has_several {
            text.push_str(&self.label);
            text.push_str(" | ");
        }
        text.push_str(&self.partial_line);
        self.partial_line.clear();
    }
}

/// Returns the label of a process: the number of an instance, otherwise the end of its id.
fn default_label(work: &WorkId, id: &AllocationId, node: &NodeName) -> String {
    if let Some((_, instance)) = work.as_str().split_once('.') {
        return format!("{instance} on {node}");
    }
    let suffix_start = id.as_str().len().saturating_sub(ID_SUFFIX_LENGTH);
    let suffix = id.as_str().get(suffix_start..).unwrap_or_default();
    format!("{suffix} on {node}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(container: &str, work: &str, text: &str) -> WorkLogChunk {
        WorkLogChunk {
            container: container.parse().unwrap(),
            work: work.parse().unwrap(),
            node: "n1".parse().unwrap(),
            at: None,
            offset: 0,
            missed_bytes: 0,
            text: text.to_owned(),
        }
    }

    fn logs_with(pieces: Vec<WorkLogChunk>) -> WorkLogs {
        WorkLogs {
            chunks: pieces,
            ended: Vec::new(),
            live: 1,
            left_out: 0,
            cursor: String::new(),
        }
    }

    #[test]
    fn tasks_of_an_application_are_labelled_by_their_names() {
        let mut lines = OutputLines::default();
        let names = [("app_1.0", "worker-0"), ("app_1.1", "worker-1")];
        let work_and_name = |(work, name): (&str, &str)| (work.parse().unwrap(), name.to_owned());
        lines.names = names.map(work_and_name).into();
        let both = logs_with(vec![
            piece("alc_1", "app_1.0", "one\n"),
            piece("alc_2", "app_1.1", "two\n"),
            piece("alc_3", "app_1.2", "three\n"),
        ]);
        let printed = lines.format(&both);
        let expected = "one\nworker-1 on n1 | two\n2 on n1 | three\n";
        assert_eq!(printed, expected);
    }

    #[test]
    fn only_the_selected_process_is_followed() {
        let source = Source::for_process("svc_1".parse().unwrap(), "alc_2".parse().unwrap());
        let mut logs = logs_with(vec![
            piece("alc_1", "svc_1.0", "one\n"),
            piece("alc_2", "svc_1.1", "two\n"),
        ]);
        source.retain_followed(&mut logs);
        assert_eq!(OutputLines::default().format(&logs), "two\n");
        assert!(
            !source.has_last_process_ended(&logs),
            "the process still runs"
        );
    }

    #[test]
    fn lines_of_several_processes_never_mix_and_have_labels() {
        let mut lines = OutputLines::default();
        let alone = logs_with(vec![piece("alc_1", "svc_1.0", "one\ntw")]);
        assert_eq!(lines.format(&alone), "one\n");
        let both = logs_with(vec![
            piece("alc_2", "svc_1.1", "other\n"),
            piece("alc_1", "svc_1.0", "o\nthr"),
        ]);
        assert_eq!(lines.format(&both), "1 on n1 | other\n0 on n1 | two\n");
        assert_eq!(lines.finish_all(), "0 on n1 | thr\n");
        assert_eq!(lines.finish_all(), "");
    }
}
