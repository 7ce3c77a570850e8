//! Terms of a job: what is equal for all its tasks. A runner gets them once.

use hayward_job_converter_api::placeholders::contains_any;
use hayward_job_converter_api::signals::TaskSignal;
use hayward_job_converter_api::submission::JobSubmission;
use hayward_job_converter_api::tasks::RunTerms;

use super::{Job, Work};

/// Variables that Hayward sets for each task. Users cannot set them (TC-64).
pub const RESERVED_VARIABLES: [&str; 21] = [
    "HAYWARD_JOB_ID",
    "HAYWARD_JOB_NAME",
    "HAYWARD_TASK_COUNT",
    "HAYWARD_USER",
    "HAYWARD_CLASS",
    "HAYWARD_QUEUE",
    "HAYWARD_CPUS",
    "HAYWARD_CPU_MILLI",
    "HAYWARD_MEMORY_BYTES",
    "HAYWARD_THREADS",
    "HAYWARD_STOP_GRACE_MS",
    "HAYWARD_TIME_LIMIT_MS",
    "HAYWARD_TASK",
    "HAYWARD_ATTEMPT",
    "HAYWARD_RUN_ID",
    "HAYWARD_NODE",
    "HAYWARD_ALLOCATION",
    "HAYWARD_SLOT",
    "HAYWARD_WORK_DIR",
    "HAYWARD_DEADLINE",
    "HAYWARD_SCRIPT",
];

/// Time in milliseconds that a runner has for its last reports, after the grace of its tasks.
const REPORT_MARGIN_MS: u64 = 1_000;

/// Returns the milliseconds from the stop signal of a task to SIGKILL.
fn task_grace_ms(job: &JobSubmission, default_grace_ms: u64) -> u64 {
    job.stop_grace_ms.unwrap_or(default_grace_ms)
}

/// Returns the grace of a process of the job. A task gets its whole grace, and its runner reports
/// afterwards.
pub fn process_grace_ms(job: &JobSubmission, default_grace_ms: u64) -> u64 {
    task_grace_ms(job, default_grace_ms).saturating_add(REPORT_MARGIN_MS)
}

/// Returns the version of the terms that a runner must understand. A runner of an older version
/// would ignore what the job asks for. 0: any runner can run the tasks.
pub fn needed_terms(job: &JobSubmission) -> u32 {
    if job.stdin.is_some() {
        2
    } else {
        u32::from(needs_terms(job))
    }
}

fn needs_terms(job: &JobSubmission) -> bool {
    // job-converter replaces `{task}` in the command itself.
    let has_other_placeholder = |word: &String| contains_any(&word.replace("{task}", ""));
    job.script.is_some()
        || job.time_limit_ms.is_some()
        || job.stop_signal.is_some()
        || job.stop_grace_ms.is_some()
        || job.trust_exit_after_stop
        || job.output.is_some()
        || job.command.iter().any(has_other_placeholder)
        || job.environment.values().any(|value| contains_any(value))
        || job.working_directory.as_deref().is_some_and(contains_any)
}

impl Work {
    /// Returns the terms of a job. `None` for other work. A job that sets no grace has the default.
    pub fn run_terms(&self, default_grace_ms: u64) -> Option<RunTerms> {
        let job = self.job()?;
        let submission = &job.submission;
        let stop_grace_ms = task_grace_ms(submission, default_grace_ms);
        let mut environment = submission.environment.clone();
        let cpus = self.size().cpu_milli.div_ceil(1_000);
        if cpus > 0 {
            // Without the variable, programs with OpenMP start a thread for each CPU of the node.
            let threads = environment.entry("OMP_NUM_THREADS".to_owned());
            threads.or_insert_with(|| cpus.to_string());
        }
        environment.extend(self.job_variables(job, stop_grace_ms));
        Some(RunTerms {
            job: self.id.clone(),
            name: self.name(),
            user: self.user.to_string(),
            command: submission.command.clone(),
            script: submission.script.clone(),
            environment,
            working_directory: submission.working_directory.clone(),
            time_limit_ms: submission.time_limit_ms,
            warn_before_ms: submission.warn_before_ms,
            warn_signal: submission.warn_signal.unwrap_or(TaskSignal::Usr1),
            stop_signal: submission.stop_signal.unwrap_or(TaskSignal::Term),
            stop_grace_ms,
            trust_exit_after_stop: submission.trust_exit_after_stop,
            output: submission.output.clone().unwrap_or_default(),
            stdin: submission.stdin.clone(),
        })
    }

    /// Returns the variables of Hayward that are equal for all tasks. The runner adds those of each
    /// task.
    fn job_variables(
        &self,
        job: &Job,
        stop_grace_ms: u64,
    ) -> impl Iterator<Item = (String, String)> {
        let submission = &job.submission;
        let size = self.size();
        let cpus = size.cpu_milli.div_ceil(1_000).max(1);
        let threads = submission.threads.unwrap_or(1);
        let variables = [
            ("HAYWARD_JOB_ID", Some(self.id.to_string())),
            ("HAYWARD_JOB_NAME", Some(self.name())),
            ("HAYWARD_TASK_COUNT", Some(job.tasks.total().to_string())),
            ("HAYWARD_USER", Some(self.user.to_string())),
            ("HAYWARD_CLASS", submission.class.clone()),
            ("HAYWARD_QUEUE", submission.queue.clone()),
            ("HAYWARD_CPUS", Some(cpus.to_string())),
            ("HAYWARD_CPU_MILLI", Some(size.cpu_milli.to_string())),
            ("HAYWARD_MEMORY_BYTES", Some(size.memory_bytes.to_string())),
            ("HAYWARD_THREADS", Some(threads.to_string())),
            ("HAYWARD_STOP_GRACE_MS", Some(stop_grace_ms.to_string())),
            (
                "HAYWARD_TIME_LIMIT_MS",
                submission.time_limit_ms.map(|limit| limit.to_string()),
            ),
        ];
        variables
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)))
    }
}

#[cfg(test)]
mod tests {
    use hayward_vocabulary::{WorkId, WorkKind};
    use serde_json::{Value, json};
    use uuid::Uuid;

    use super::*;
    use crate::work::Runner;
    use crate::work::prepared_work::{Origin, job_spec};

    const DEFAULT_GRACE_MS: u64 = 10_000;

    fn terms_of(submission: Value) -> RunTerms {
        let origin = Origin::sample();
        let uuid = Uuid::from_u128(7);
        let id = WorkId::from_uuid(WorkKind::Job, uuid);
        let runner = Runner {
            id: id.clone(),
            token: "t".into(),
        };
        let spec = job_spec(serde_json::from_value(submission).unwrap(), runner);
        let work = Work::new(id, uuid, &origin, spec);
        work.run_terms(DEFAULT_GRACE_MS).unwrap()
    }

    #[test]
    fn a_plain_job_has_the_default_terms() {
        let terms = terms_of(json!({ "command": ["/bin/tool", "{task}"] }));
        assert_eq!((terms.name.as_str(), terms.user.as_str()), ("tool", "ann"));
        assert_eq!(terms.command, ["/bin/tool", "{task}"]);
        assert_eq!(terms.stop_grace_ms, DEFAULT_GRACE_MS);
        assert_eq!((terms.time_limit_ms, terms.warn_before_ms), (None, None));
        let signals = (terms.warn_signal, terms.stop_signal);
        assert_eq!(signals, (TaskSignal::Usr1, TaskSignal::Term));
        for (name, value) in [
            ("HAYWARD_JOB_ID", terms.job.as_str()),
            ("HAYWARD_JOB_NAME", "tool"),
            ("HAYWARD_TASK_COUNT", "1"),
            ("HAYWARD_USER", "ann"),
            ("HAYWARD_CPUS", "1"),
            ("HAYWARD_CPU_MILLI", "0"),
            ("HAYWARD_MEMORY_BYTES", "1073741824"),
            ("HAYWARD_THREADS", "1"),
            ("HAYWARD_STOP_GRACE_MS", "10000"),
        ] {
            assert_eq!(terms.environment[name], value, "{name}");
        }
        assert_eq!(terms.environment.len(), 9, "{:?}", terms.environment);
    }

    #[test]
    fn the_choices_of_a_job_are_in_its_terms() {
        let terms = terms_of(json!({
            "command": ["x"], "name": "n", "queue": "root.a", "tasks": { "count": 3 },
            "size": { "memory_bytes": 5, "cpu_milli": 1001 }, "threads": 4,
            "environment": { "K": "{task}", "HAYWARD_USER": "eve" },
            "time_limit_ms": 7000, "warn_before_ms": 500, "warn_signal": "HUP",
            "stop_signal": "INT", "stop_grace_ms": 0, "trust_exit_after_stop": true,
            "output": { "stdout": "out-{task}" },
        }));
        assert_eq!(
            (terms.time_limit_ms, terms.warn_before_ms),
            (Some(7_000), Some(500))
        );
        assert_eq!(terms.stop_signal.to_string(), "INT");
        assert!(terms.trust_exit_after_stop && terms.stop_grace_ms == 0);
        assert_eq!(terms.output.stdout.as_deref(), Some("out-{task}"));
        for (name, value) in [
            ("K", "{task}"),
            // A job from before the names were reserved cannot pretend to be of another user.
            ("HAYWARD_USER", "ann"),
            ("HAYWARD_QUEUE", "root.a"),
            ("HAYWARD_CPUS", "2"),
            ("HAYWARD_CPU_MILLI", "1001"),
            ("HAYWARD_THREADS", "4"),
            ("OMP_NUM_THREADS", "2"),
            ("HAYWARD_TASK_COUNT", "3"),
            ("HAYWARD_TIME_LIMIT_MS", "7000"),
            ("HAYWARD_STOP_GRACE_MS", "0"),
        ] {
            assert_eq!(terms.environment[name], value, "{name}");
        }
        assert!(!terms.environment.contains_key("HAYWARD_CLASS"));
        let reserved = |name: &&String| name.starts_with("HAYWARD_");
        for name in terms.environment.keys().filter(reserved) {
            assert!(RESERVED_VARIABLES.contains(&name.as_str()), "{name}");
        }
    }

    #[test]
    fn only_a_job_without_new_fields_runs_without_terms() {
        let needs = |fields: Value| needs_terms(&serde_json::from_value(fields).unwrap());
        let plain = json!({ "command": ["x", "{task}", "{other}"], "environment": { "A": "{b}" } });
        assert!(!needs(plain));
        for fields in [
            json!({ "script": { "text": "x" } }),
            json!({ "command": ["x"], "time_limit_ms": 1 }),
            json!({ "command": ["x"], "output": { "stdout": "discard" } }),
            json!({ "command": ["x-{task}-{node}"] }),
            json!({ "command": ["x"], "environment": { "A": "{task}" } }),
            json!({ "command": ["x"], "working_directory": "/data/{user}" }),
        ] {
            assert!(needs(fields.clone()), "{fields}");
        }
    }

    #[test]
    fn a_process_has_the_grace_of_its_tasks_and_time_for_reports() {
        let job = |fields| serde_json::from_value::<JobSubmission>(fields).unwrap();
        let plain = job(json!({ "command": ["x"] }));
        assert_eq!(process_grace_ms(&plain, 5_000), 6_000);
        let own = job(json!({ "command": ["x"], "stop_grace_ms": 300 }));
        assert_eq!(process_grace_ms(&own, 5_000), 1_300);
    }
}
