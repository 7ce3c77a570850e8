//! The plan of one run of a task: its argument vector, variables, streams and times. Placeholders
//! are replaced here (TC-65).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hayward_job_converter_api::placeholders::Values;
use hayward_job_converter_api::signals::TaskSignal;
use hayward_job_converter_api::submission::{FileMode, OutputSubmission, StdinSubmission};
use hayward_job_converter_api::tasks::{LeasedTask, RunTerms};
use hayward_node_agent_domain::RunTimes;
use hayward_vocabulary::Timestamp;
use serde::{Deserialize, Serialize};

use super::script_file;

/// The variable whose value is the name of a job, which may look like a placeholder.
const NAME_VARIABLE: &str = "HAYWARD_JOB_NAME";
/// Grace in milliseconds of a task whose job-converter names none, because it is older. The process
/// has the same grace or a shorter one, which then counts.
const DEFAULT_GRACE_MS: u64 = 10_000;

/// Data that is equal for all runs of one launcher.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LauncherContext {
    pub node: String,
    pub allocation: String,
    /// Number of the slot in its process, from 0.
    pub slot: usize,
    /// Directory of the allocation, in which programs start by default.
    pub work_dir: PathBuf,
    /// Variables that each run inherits.
    pub environment: BTreeMap<String, String>,
    /// Cgroups of the slot.
    pub groups: Vec<PathBuf>,
    /// Memory that all slots of the process may use together.
    pub memory_limit_bytes: Option<u64>,
}

/// Position of a run in its process.
#[derive(Debug, Clone, Copy)]
pub struct RunPlace {
    /// Number of the run among those of the process, from 1.
    pub number: u64,
    pub now: Timestamp,
}

/// Destination of one stream of output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stream {
    /// The last words are stored with the outcome.
    Keep,
    Discard,
    File(PathBuf),
}

/// Source of the standard input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    Empty,
    Text(String),
    File(PathBuf),
}

/// All that one run needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunPlan {
    pub argv: Vec<String>,
    pub environment: BTreeMap<String, String>,
    /// Directory that the user named.
    pub working_directory: Option<PathBuf>,
    pub input: Input,
    pub stdout: Stream,
    /// `None` follows stdout.
    pub stderr: Option<Stream>,
    pub file_mode: FileMode,
    pub make_directories: bool,
    pub times: RunTimes,
    pub warn_signal: TaskSignal,
    pub stop_signal: TaskSignal,
    pub trust_exit_after_stop: bool,
}

impl RunPlan {
    pub fn new(
        context: &LauncherContext,
        terms: &RunTerms,
        task: &LeasedTask,
        place: RunPlace,
    ) -> Self {
        let run = run_id(context, place);
        let values = Values {
            job: terms.job.as_str(),
            name: &terms.name,
            task: task.task,
            attempt: task.attempt,
            run: &run,
            user: &terms.user,
            node: &context.node,
            allocation: &context.allocation,
        };
        let directory = terms.working_directory.as_deref();
        let working_directory = directory.map(|path| PathBuf::from(values.fill_path(path)));
        let base = working_directory.as_deref().unwrap_or(&context.work_dir);
        let (stdout, stderr) = streams(&terms.output, &values, base);
        let input = match &terms.stdin {
            None => Input::Empty,
            Some(StdinSubmission::Text(text)) => Input::Text(text.clone()),
            Some(StdinSubmission::File(path)) => Input::File(base.join(values.fill_path(path))),
        };
        let words = terms.command.iter().map(|word| values.fill(word));
        // Arguments of single tasks are data, so they stay as they are.
        let mut argv: Vec<String> = words.chain(task.arguments.iter().cloned()).collect();
        let mut environment = environment(context, user_variables(terms, &values), task, place);
        environment.extend(deadline(terms.time_limit_ms, place.now));
        if let Some(script) = &terms.script {
            let path = script_file::path(script, &context.work_dir)
                .display()
                .to_string();
            argv.splice(0..0, script_file::start_words(script, &path));
            environment.insert("HAYWARD_SCRIPT".to_owned(), path);
        }
        Self {
            argv,
            environment,
            input,
            stdout,
            stderr,
            file_mode: terms.output.mode,
            make_directories: terms.output.make_directories,
            times: RunTimes {
                time_limit_ms: terms.time_limit_ms,
                warn_before_ms: terms.warn_before_ms,
                stop_grace_ms: terms.stop_grace_ms,
            },
            warn_signal: terms.warn_signal,
            stop_signal: terms.stop_signal,
            trust_exit_after_stop: terms.trust_exit_after_stop,
            working_directory,
        }
    }

    /// Returns the plan for a task of an older job-converter, which sends the whole command with
    /// each task and has replaced its placeholders.
    pub fn of_older_server(context: &LauncherContext, task: &LeasedTask, place: RunPlace) -> Self {
        Self {
            argv: task.argv.clone(),
            environment: environment(context, task.environment.clone(), task, place),
            working_directory: task.working_directory.as_ref().map(PathBuf::from),
            input: Input::Empty,
            stdout: Stream::Keep,
            stderr: None,
            file_mode: FileMode::Truncate,
            make_directories: false,
            times: RunTimes {
                time_limit_ms: None,
                warn_before_ms: None,
                stop_grace_ms: DEFAULT_GRACE_MS,
            },
            warn_signal: TaskSignal::Usr1,
            stop_signal: TaskSignal::Term,
            trust_exit_after_stop: false,
        }
    }
}

/// Returns the destinations of both streams. Relative paths are below `base`.
fn streams(output: &OutputSubmission, values: &Values, base: &Path) -> (Stream, Option<Stream>) {
    let stream = |text: &str| match text {
        "keep" => Stream::Keep,
        "discard" => Stream::Discard,
        pattern => Stream::File(base.join(values.fill_path(pattern))),
    };
    let stdout = stream(output.stdout.as_deref().unwrap_or("keep"));
    let stderr = output.stderr.as_deref().filter(|text| *text != "merge");
    // One file with two positions would be overwritten.
    let stderr = stderr.map(stream).filter(|stderr| *stderr != stdout);
    (stdout, stderr)
}

/// Returns the name of a run, which no other start in the fleet has.
fn run_id(context: &LauncherContext, place: RunPlace) -> String {
    format!("{}.{}", context.allocation, place.number)
}

/// Returns the variables of the terms with their placeholders replaced.
fn user_variables(terms: &RunTerms, values: &Values) -> BTreeMap<String, String> {
    let fill = |(name, value): (&String, &String)| {
        let filled = if name == NAME_VARIABLE {
            value.clone()
        } else {
            values.fill(value)
        };
        (name.clone(), filled)
    };
    terms.environment.iter().map(fill).collect()
}

/// Returns the variables of a run. Those of Hayward override those of the user (TC-64).
fn environment(
    context: &LauncherContext,
    user_variables: BTreeMap<String, String>,
    task: &LeasedTask,
    place: RunPlace,
) -> BTreeMap<String, String> {
    let mut environment = context.environment.clone();
    let work_dir = context.work_dir.display().to_string();
    environment
        .entry("TMPDIR".to_owned())
        .or_insert_with(|| work_dir.clone());
    environment.extend(user_variables);
    let variables = [
        ("HAYWARD_TASK", task.task.to_string()),
        ("HAYWARD_ATTEMPT", task.attempt.to_string()),
        ("HAYWARD_RUN_ID", run_id(context, place)),
        ("HAYWARD_NODE", context.node.clone()),
        ("HAYWARD_ALLOCATION", context.allocation.clone()),
        ("HAYWARD_SLOT", context.slot.to_string()),
        ("HAYWARD_WORK_DIR", work_dir),
    ];
    environment.extend(variables.map(|(name, value)| (name.to_owned(), value)));
    environment
}

/// Returns the variable with the second at which the time limit is reached.
fn deadline(time_limit_ms: Option<u64>, now: Timestamp) -> Option<(String, String)> {
    let limit_ms = i64::try_from(time_limit_ms?).unwrap_or(i64::MAX);
    let at_ms = now.unix_ms().saturating_add(limit_ms);
    Some(("HAYWARD_DEADLINE".to_owned(), (at_ms / 1_000).to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context() -> LauncherContext {
        LauncherContext {
            node: "node-2".into(),
            allocation: "alc_9".into(),
            slot: 1,
            work_dir: "/state/work".into(),
            environment: [("PATH".to_owned(), "/bin".to_owned())].into(),
            groups: Vec::new(),
            memory_limit_bytes: None,
        }
    }

    fn terms() -> RunTerms {
        let terms = serde_json::json!({
            "job": "job_1", "name": "a/b", "user": "ada", "warn_signal": "USR1",
            "stop_signal": "TERM", "stop_grace_ms": 10, "time_limit_ms": 90_000,
            "command": ["/bin/echo", "{task:03}", "{node}"],
            "environment": {
                "RUN": "{run}-{attempt}", "HAYWARD_JOB_NAME": "n{task}",
                "HAYWARD_TASK": "of the user",
            },
            "output": { "stdout": "out/{task}", "stderr": "/data/{name}/{task}.err" },
        });
        serde_json::from_value(terms).unwrap()
    }

    fn task() -> LeasedTask {
        LeasedTask {
            task: 7,
            attempt: 2,
            arguments: vec!["{task}".into()],
            argv: Vec::new(),
            environment: BTreeMap::new(),
            working_directory: None,
        }
    }

    const PLACE: RunPlace = RunPlace {
        number: 4,
        now: Timestamp::from_unix_ms(1_000_000),
    };

    #[test]
    fn placeholders_are_replaced_but_not_in_arguments_of_single_tasks() {
        let plan = RunPlan::new(&context(), &terms(), &task(), PLACE);
        assert_eq!(plan.argv, ["/bin/echo", "007", "node-2", "{task}"]);
        assert_eq!(plan.environment["RUN"], "alc_9.4-2");
        assert_eq!(plan.environment[NAME_VARIABLE], "n{task}");
    }

    #[test]
    fn a_run_knows_its_task_slot_node_and_deadline() {
        let plan = RunPlan::new(&context(), &terms(), &task(), PLACE);
        let expected = [
            ("PATH", "/bin"),
            ("HAYWARD_TASK", "7"),
            ("HAYWARD_ATTEMPT", "2"),
            ("HAYWARD_RUN_ID", "alc_9.4"),
            ("HAYWARD_NODE", "node-2"),
            ("HAYWARD_SLOT", "1"),
            ("HAYWARD_WORK_DIR", "/state/work"),
            ("TMPDIR", "/state/work"),
            ("HAYWARD_DEADLINE", "1090"),
        ];
        for (name, value) in expected {
            assert_eq!(plan.environment[name], value, "{name}");
        }
    }

    #[test]
    fn relative_paths_are_below_the_working_directory() {
        let plan = RunPlan::new(&context(), &terms(), &task(), PLACE);
        assert_eq!(plan.stdout, Stream::File("/state/work/out/7".into()));
        assert_eq!(plan.stderr, Some(Stream::File("/data/a_b/7.err".into())));
        let mut terms = terms();
        terms.working_directory = Some("/home/{task}".into());
        terms.output.stderr = Some("out/7".into());
        let plan = RunPlan::new(&context(), &terms, &task(), PLACE);
        assert_eq!(plan.stdout, Stream::File("/home/7/out/7".into()));
        assert_eq!(plan.stderr, None, "one file is opened once");
    }

    #[test]
    fn nothing_is_replaced_in_a_task_of_an_older_server() {
        let older = LeasedTask {
            argv: ["/bin/echo", "{task}"].map(str::to_owned).into(),
            environment: [("USER_DIR".to_owned(), "{user}".to_owned())].into(),
            working_directory: Some("/data/{user}".into()),
            ..task()
        };
        let plan = RunPlan::of_older_server(&context(), &older, PLACE);
        assert_eq!(plan.argv, ["/bin/echo", "{task}"]);
        assert_eq!(plan.environment["USER_DIR"], "{user}");
        assert_eq!(plan.environment["HAYWARD_TASK"], "7");
        assert_eq!(plan.working_directory, Some("/data/{user}".into()));
        assert_eq!((plan.stdout, plan.stderr), (Stream::Keep, None));
    }
}
