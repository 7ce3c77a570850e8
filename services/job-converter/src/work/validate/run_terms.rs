//! Validates how the tasks of a job run: limits, signals, output and reserved variables.

use hayward_job_converter_api::placeholders;
use hayward_job_converter_api::submission::{
    FileMode, JobSubmission, OutputSubmission, ScriptSubmission, StdinSubmission,
};

use super::{Faults, MAX_NAME_LENGTH, MAX_TEXT_LENGTH};
use crate::work::run_terms::RESERVED_VARIABLES;

/// One year in milliseconds.
const MAX_TIME_LIMIT_MS: u64 = 365 * 86_400_000;
/// Ten minutes in milliseconds.
const MAX_STOP_GRACE_MS: u64 = 600_000;
const KEEP: &str = "keep";
const DISCARD: &str = "discard";
const MERGE: &str = "merge";

/// Maximum size of a script in bytes.
const MAX_SCRIPT_LENGTH: usize = 65_536;
/// Maximum size of a text for standard input in bytes.
const MAX_STDIN_LENGTH: usize = 65_536;

/// Checks the program of a job. With a script, the command has only its arguments and may be empty.
pub fn check_command(faults: &mut Faults, job: &JobSubmission) {
    match &job.script {
        None if job.command.is_empty() => {
            faults.add("/command", "names no program: write one, or a `script`");
        }
        None => faults.check_command(&job.command),
        Some(script) => {
            faults.check_arguments("/command", &job.command);
            check_script(faults, script);
        }
    }
}

fn check_script(faults: &mut Faults, script: &ScriptSubmission) {
    let text = &script.text;
    faults.check(!text.trim().is_empty(), "/script/text", || {
        "is empty: write the lines of the script".to_owned()
    });
    faults.check(text.len() <= MAX_SCRIPT_LENGTH, "/script/text", || {
        let length = text.len();
        format!(
            "has {length} bytes, and a script may have {MAX_SCRIPT_LENGTH}: let it start a program \
             that is on the nodes"
        )
    });
    faults.check(!text.contains('\0'), "/script/text", || {
        "has a NUL character: a program that is no text must be on the nodes".to_owned()
    });
    faults.check_arguments("/script/interpreter", &script.interpreter);
    if let Some(name) = &script.name {
        faults.check_text(|| "/script/name".to_owned(), name, MAX_NAME_LENGTH);
        let is_file_name = !matches!(name.as_str(), "" | "." | "..") && !name.contains('/');
        faults.check(is_file_name, "/script/name", || {
            "must be a file name without `/`".to_owned()
        });
    }
}

pub fn check_run_terms(faults: &mut Faults, job: &JobSubmission) {
    check_limits(faults, job);
    check_variables(faults, job);
    if let Some(output) = &job.output {
        check_output(faults, output, job.tasks.len());
    }
    match &job.stdin {
        None => {}
        Some(StdinSubmission::Text(text)) => {
            faults.check(text.len() <= MAX_STDIN_LENGTH, "/stdin/text", || {
                let length = text.len();
                format!(
                    "has {length} bytes, and a text may have {MAX_STDIN_LENGTH}: put it into a \
                     file that the nodes can read, and name that in `file`"
                )
            });
        }
        Some(StdinSubmission::File(path)) => check_path(faults, "/stdin/file", path),
    }
}

fn check_limits(faults: &mut Faults, job: &JobSubmission) {
    let time_limit_ms = job.time_limit_ms.unwrap_or(1);
    faults.check(
        (1..=MAX_TIME_LIMIT_MS).contains(&time_limit_ms),
        "/time_limit_ms",
        || format!("must be 1 to {MAX_TIME_LIMIT_MS}, which is one year"),
    );
    match (job.warn_before_ms, job.time_limit_ms) {
        (Some(_), None) => faults.add(
            "/warn_before_ms",
            "needs `time_limit_ms`: set it too, or leave this out",
        ),
        (Some(warn_before_ms), Some(limit)) => {
            let is_valid = (1..limit).contains(&warn_before_ms);
            faults.check(is_valid, "/warn_before_ms", || {
                format!("must be 1 or more, and less than `time_limit_ms`, {limit}")
            });
        }
        (None, _) => faults.check(job.warn_signal.is_none(), "/warn_signal", || {
            "needs `warn_before_ms`: set it too, or leave this out".to_owned()
        }),
    }
    let stop_grace_ms = job.stop_grace_ms.unwrap_or(0);
    faults.check(stop_grace_ms <= MAX_STOP_GRACE_MS, "/stop_grace_ms", || {
        format!("must be 0 to {MAX_STOP_GRACE_MS}")
    });
}

fn check_variables(faults: &mut Faults, job: &JobSubmission) {
    for name in RESERVED_VARIABLES {
        if job.environment.contains_key(name) {
            let detail = "is set by Hayward for each task: choose another name";
            faults.add(format!("/environment/{name}"), detail);
        }
    }
}

fn check_output(faults: &mut Faults, output: &OutputSubmission, tasks: u64) {
    let streams = [
        ("/output/stdout", output.stdout.as_deref()),
        ("/output/stderr", output.stderr.as_deref()),
    ];
    let mut has_path = false;
    for (pointer, target) in streams {
        match target {
            None | Some(KEEP | DISCARD) => {}
            Some(MERGE) if pointer == "/output/stderr" => {}
            Some(MERGE) => faults.add(pointer, "only `stderr` can follow another stream"),
            Some(path) => {
                has_path = true;
                check_path(faults, pointer, path);
                let is_shared = tasks > 1 && !differs_for_each_task(path);
                if is_shared && output.mode == FileMode::Truncate && !path.is_empty() {
                    let detail =
                        format!("names one file for {tasks} tasks: use {{task}}, or mode append");
                    faults.add(pointer, detail);
                }
            }
        }
    }
    let needs_path = "counts for files only: name a path in `stdout` or `stderr`, or leave it out";
    let appends = output.mode == FileMode::Append;
    faults.check(has_path || !appends, "/output/mode", || {
        needs_path.to_owned()
    });
    let makes_directories = output.make_directories;
    faults.check(
        has_path || !makes_directories,
        "/output/make_directories",
        || needs_path.to_owned(),
    );
}

/// Returns true if the path is another one for each task. No two runs have the same `{run}`.
fn differs_for_each_task(path: &str) -> bool {
    placeholders::contains(path, "task") || placeholders::contains(path, "run")
}

fn check_path(faults: &mut Faults, pointer: &str, path: &str) {
    faults.check(!path.is_empty(), pointer, || {
        "is empty: write a path".to_owned()
    });
    faults.check_text(|| pointer.to_owned(), path, MAX_TEXT_LENGTH);
    for name in placeholders::find_misspelt(path) {
        let known = placeholders::NAMES.map(|known| format!("{{{known}}}"));
        let known = known.join(", ");
        let detail = format!("{{{name}}} is no placeholder: did you mean one of {known}?");
        faults.add(pointer, detail);
    }
}

#[cfg(test)]
mod tests {
    use super::super::check_job;

    /// Returns the faults of a job with these fields, each as pointer and detail.
    fn faults_of(fields: &str) -> Vec<(String, String)> {
        let job = serde_json::from_str(&format!(r#"{{"command":["x"],{fields}}}"#)).unwrap();
        let faults = check_job(&job).err().unwrap_or_default();
        let faults = faults.into_iter();
        faults.map(|fault| (fault.pointer, fault.detail)).collect()
    }

    fn pointers_of(fields: &str) -> Vec<String> {
        let faults = faults_of(fields).into_iter();
        faults.map(|(pointer, _)| pointer).collect()
    }

    #[test]
    fn a_job_needs_a_program_or_a_script() {
        let faults_of_job = |job: &str| {
            let job = serde_json::from_str(job).unwrap();
            let faults = check_job(&job).err().unwrap_or_default();
            faults
                .into_iter()
                .map(|fault| fault.pointer)
                .collect::<Vec<_>>()
        };
        assert_eq!(faults_of_job("{}"), ["/command"]);
        let script = r##"{"script":{"text":"#!/bin/sh\necho $1\n","name":"a.sh"}}"##;
        assert!(faults_of_job(script).is_empty());
        for (script, pointer) in [
            (r#"{"text":" \n"}"#, "/script/text"),
            (r#"{"text":"a\u0000b"}"#, "/script/text"),
            (r#"{"text":"x","name":"a/b"}"#, "/script/name"),
            (r#"{"text":"x","name":".."}"#, "/script/name"),
        ] {
            let job = format!(r#"{{"script":{script}}}"#);
            assert_eq!(faults_of_job(&job), [pointer], "{script}");
        }
        let long = format!(r#"{{"script":{{"text":"{}"}}}}"#, "x".repeat(65_537));
        assert_eq!(faults_of_job(&long), ["/script/text"]);
    }

    #[test]
    fn a_time_limit_is_at_most_one_year() {
        for good in ["1", "31536000000"] {
            assert!(
                faults_of(&format!(r#""time_limit_ms":{good}"#)).is_empty(),
                "{good}"
            );
        }
        for bad in ["0", "31536000001"] {
            let faults = faults_of(&format!(r#""time_limit_ms":{bad}"#));
            assert_eq!(faults.len(), 1, "{faults:?}");
            assert_eq!(faults[0].0, "/time_limit_ms");
            assert!(faults[0].1.contains("1 to 31536000000"), "{faults:?}");
        }
    }

    #[test]
    fn a_warning_comes_before_a_time_limit() {
        for (fields, expected) in [
            (
                r#""time_limit_ms":10,"warn_before_ms":9,"warn_signal":"HUP""#,
                None,
            ),
            (r#""warn_before_ms":9"#, Some("/warn_before_ms")),
            (
                r#""time_limit_ms":10,"warn_before_ms":0"#,
                Some("/warn_before_ms"),
            ),
            (
                r#""time_limit_ms":10,"warn_before_ms":10"#,
                Some("/warn_before_ms"),
            ),
            (
                r#""time_limit_ms":10,"warn_signal":"HUP""#,
                Some("/warn_signal"),
            ),
        ] {
            assert_eq!(pointers_of(fields), Vec::from_iter(expected), "{fields}");
        }
    }

    #[test]
    fn the_grace_of_a_stop_is_at_most_ten_minutes() {
        for good in ["0", "600000"] {
            assert!(
                faults_of(&format!(r#""stop_grace_ms":{good}"#)).is_empty(),
                "{good}"
            );
        }
        assert_eq!(pointers_of(r#""stop_grace_ms":600001"#), ["/stop_grace_ms"]);
    }

    #[test]
    fn variables_of_hayward_are_refused_and_other_names_are_free() {
        let fields = r#""environment":{"HAYWARD_TASK":"1","HAYWARD_USER":"eve"}"#;
        let expected = ["/environment/HAYWARD_USER", "/environment/HAYWARD_TASK"];
        assert_eq!(pointers_of(fields), expected);
        assert!(faults_of(r#""environment":{"HAYWARD_TASKS":"1"}"#).is_empty());
    }

    #[test]
    fn each_stream_has_one_of_its_targets() {
        for good in [
            r#""output":{}"#,
            r#""output":{"stdout":"keep","stderr":"merge"}"#,
            r#""output":{"stdout":"discard","stderr":"discard"}"#,
            r#""output":{"stdout":"kep"}"#,
            r#""output":{"stdout":"a","mode":"append","make_directories":true}"#,
        ] {
            assert!(faults_of(good).is_empty(), "{good}");
        }
        for (bad, pointer) in [
            (r#""output":{"stdout":"merge"}"#, "/output/stdout"),
            (r#""output":{"stdout":""}"#, "/output/stdout"),
            (r#""output":{"stderr":"a\u0000b"}"#, "/output/stderr"),
            (r#""output":{"mode":"append"}"#, "/output/mode"),
            (
                r#""output":{"stdout":"keep","make_directories":true}"#,
                "/output/make_directories",
            ),
        ] {
            assert_eq!(pointers_of(bad), [pointer], "{bad}");
        }
        let long = format!(r#""output":{{"stdout":"{}"}}"#, "x".repeat(4_097));
        assert_eq!(pointers_of(&long), ["/output/stdout"]);
    }

    #[test]
    fn several_tasks_do_not_empty_one_file() {
        let with = |output: &str| {
            let output = format!(r#""tasks":{{"count":300}},"output":{{{output}}}"#);
            faults_of(&output)
        };
        for good in [
            r#""stdout":"out-{task:05}""#,
            r#""stdout":"out-{run}""#,
            r#""stdout":"out","mode":"append""#,
            r#""stdout":"keep","stderr":"discard""#,
        ] {
            assert_eq!(with(good), [], "{good}");
        }
        let detail = "names one file for 300 tasks: use {task}, or mode append".to_owned();
        let expected = [("/output/stdout".to_owned(), detail)];
        assert_eq!(with(r#""stdout":"out-{job}-{{task}}""#), expected);
        assert!(
            faults_of(r#""output":{"stdout":"out"}"#).is_empty(),
            "one task"
        );
    }

    #[test]
    fn a_misspelt_placeholder_of_a_path_is_refused() {
        let faults = faults_of(r#""output":{"stdout":"out-{tsk}"}"#);
        assert_eq!(faults.len(), 1, "{faults:?}");
        let (pointer, detail) = &faults[0];
        assert_eq!(pointer, "/output/stdout");
        assert!(detail.starts_with("{tsk} is no placeholder: did you mean one of {job}, {name}"));
        assert!(detail.ends_with("{allocation}?"), "{detail}");
    }

    #[test]
    fn standard_input_is_a_short_text_or_a_path() {
        assert!(pointers_of(r#""stdin":{"text":""}"#).is_empty());
        assert!(pointers_of(r#""stdin":{"file":"/data/{task}"}"#).is_empty());
        assert_eq!(pointers_of(r#""stdin":{"file":""}"#), ["/stdin/file"]);
        assert_eq!(pointers_of(r#""stdin":{"file":"/{tsk}"}"#), ["/stdin/file"]);
        let long = format!(r#""stdin":{{"text":"{}"}}"#, "x".repeat(65_537));
        assert_eq!(pointers_of(&long), ["/stdin/text"]);
    }
}
