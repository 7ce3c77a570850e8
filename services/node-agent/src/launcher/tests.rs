//! Tests of runs of real programs.

use std::collections::BTreeMap;

use hayward_job_converter_api::submission::ScriptSubmission;
use hayward_job_converter_api::submission::{FileMode, OutputSubmission, StdinSubmission};
use hayward_job_converter_api::tasks::{LeasedTask, OUTPUT_LIMIT, RunTerms};
use hayward_node_agent_domain::StopRequest;
use nix::sys::signal::Signal;
use serde_json::json;

use super::*;

/// Returns a launcher, and the socket of its runner.
fn launcher(terms: RunTerms) -> (Launcher, UnixStream) {
    let (near, far) = UnixStream::pair().unwrap();
    let path = std::env::var("PATH").unwrap();
    let launcher = Launcher {
        runner: Receiver::new(far),
        context: LauncherContext {
            node: "node-1".into(),
            allocation: "alc_1".into(),
            slot: 0,
            work_dir: std::env::temp_dir(),
            environment: [("PATH".to_owned(), path)].into(),
            groups: Vec::new(),
            memory_limit_bytes: None,
        },
        meter: UsageMeter::new(&[]),
        terms: Some(terms),
        remaining: Remaining::Untouched,
    };
    (launcher, near)
}

fn task() -> LeasedTask {
    LeasedTask {
        task: 1,
        attempt: 1,
        arguments: Vec::new(),
        argv: Vec::new(),
        environment: BTreeMap::new(),
        working_directory: None,
    }
}

/// Returns terms of a job that runs this script with a shell.
fn terms_of(script: &str) -> RunTerms {
    let terms = json!({
        "job": "job_1", "name": "test", "user": "ada", "command": ["sh", "-c", script],
        "environment": { "COLOUR": "red" }, "working_directory": "/", "warn_signal": "USR1",
        "stop_signal": "TERM", "stop_grace_ms": 5_000,
    });
    serde_json::from_value(terms).unwrap()
}

fn order(task: LeasedTask) -> RunOrder {
    RunOrder { task, number: 1 }
}

fn run_script(script: &str) -> TaskReport {
    run_with_terms(script, |_| {})
}

/// Runs a script with changed terms.
fn run_with_terms(script: &str, change: impl FnOnce(&mut RunTerms)) -> TaskReport {
    let mut terms = terms_of(script);
    change(&mut terms);
    let (mut launcher, _runner) = launcher(terms);
    launcher.run(&order(task()))
}

fn cause(report: &TaskReport) -> (EndCause, &str) {
    let end = report.end.as_ref().unwrap();
    (end.cause, end.message.as_deref().unwrap())
}

#[test]
fn a_run_that_reaches_its_time_limit_gets_the_stop_signal() {
    let script = "trap 'echo saved; exit 0' TERM; echo begin; while :; do :; done";
    let report = run_with_terms(script, |terms| terms.time_limit_ms = Some(300));
    let message = "reached its time limit of 300 ms; SIGTERM was sent";
    assert_eq!(cause(&report), (EndCause::TimeLimit, message));
    assert_eq!(
        (report.output.as_str(), report.interrupted),
        ("begin\nsaved\n", false)
    );
    assert!(
        !report.succeeded(),
        "an exit after the stop signal is no success"
    );
}

#[test]
fn a_run_that_ignores_the_stop_signal_is_killed_after_its_grace() {
    let report = run_with_terms("trap '' TERM; while :; do sleep 0.01; done", |terms| {
        terms.time_limit_ms = Some(100);
        terms.stop_grace_ms = 150;
    });
    let message = "reached its time limit of 100 ms; SIGTERM was sent, then SIGKILL";
    assert_eq!(cause(&report), (EndCause::TimeLimit, message));
    assert_eq!(report.signal, Some(9));
}

#[test]
fn a_program_that_always_writes_is_stopped_too() {
    let report = run_with_terms("exec yes", |terms| terms.time_limit_ms = Some(30));
    assert_eq!(report.cause(), EndCause::TimeLimit);
    assert!(report.output.ends_with("y\n"), "{}", report.output.len());
}

#[test]
fn a_run_is_warned_before_its_time_limit_and_goes_on() {
    let script = "trap 'echo warned; exit 3' USR1; while :; do :; done";
    let report = run_with_terms(script, |terms| {
        terms.time_limit_ms = Some(60_000);
        terms.warn_before_ms = Some(59_900);
    });
    assert_eq!(
        (report.exit_code, report.output.as_str()),
        (Some(3), "warned\n")
    );
}

#[test]
fn children_have_the_whole_grace_although_their_parent_ended() {
    let script = "(trap 'sleep 0.3; echo saved; exit' TERM; while :; do :; done) & \
                  wait";
    let report = run_with_terms(script, |terms| terms.time_limit_ms = Some(200));
    assert_eq!(report.output, "saved\n");
    assert_eq!(
        report.signal,
        Some(15),
        "the parent did not handle the signal"
    );
}

#[test]
fn a_stop_reaches_the_current_run() {
    let (mut launcher, runner) = launcher(terms_of("echo ready; exec sleep 300"));
    let stop = StopRequest {
        reason: StopReason::Requested,
        latest_kill_at_ms: u64::MAX,
    };
    let stop_run = |run| {
        let message = ToLauncher::Stop { run, request: stop };
        messages::send(&runner, &message).unwrap();
    };
    stop_run(1);
    let report = launcher.run(&order(task()));
    assert_eq!((report.interrupted, report.signal), (true, Some(15)));
    // A stop of another run has no effect.
    stop_run(2);
    launcher.terms = Some(terms_of("sleep 0.1"));
    let report = launcher.run(&order(task()));
    assert_eq!((report.interrupted, report.exit_code), (false, Some(0)));
}

#[test]
fn a_run_is_killed_when_the_runner_ends() {
    let (mut launcher, runner) = launcher(terms_of("trap '' TERM; while :; do sleep 0.01; done"));
    drop(runner);
    let report = launcher.run(&order(task()));
    assert_eq!((report.interrupted, report.signal), (true, Some(9)));
}

#[test]
fn a_signal_of_a_user_reaches_the_running_task_and_no_other() {
    let script = "trap 'echo signalled; exit 7' USR1; while :; do :; done";
    let dir = tempfile::tempdir().unwrap();
    let ready = dir.path().join("ready");
    let script = script.replacen("while", &format!("touch {}; while", ready.display()), 1);
    let (mut launcher, runner) = launcher(terms_of(&script));
    let sender = std::thread::spawn(move || {
        while !ready.exists() {
            std::thread::yield_now();
        }
        for (run, signal) in [(2, Signal::SIGKILL), (1, Signal::SIGUSR1)] {
            let signal = signal as i32;
            messages::send(&runner, &ToLauncher::Signal { run, signal }).unwrap();
        }
        runner
    });
    let report = launcher.run(&order(task()));
    sender.join().unwrap();
    assert_eq!(
        (report.exit_code, report.output.as_str()),
        (Some(7), "signalled\n")
    );
    assert!(!report.interrupted, "the signal was not from Hayward");
}

#[test]
fn output_goes_to_files_of_the_task() {
    let dir = tempfile::tempdir().unwrap();
    let pattern = dir.path().join("a/{task:03}.txt").display().to_string();
    let run = |script: &str, mode, make_directories| {
        run_with_terms(script, |terms| {
            terms.output = OutputSubmission {
                stdout: Some(pattern.clone()),
                stderr: None,
                mode,
                make_directories,
            };
        })
    };
    let report = run("echo one", FileMode::Truncate, false);
    assert_eq!(report.cause(), EndCause::CannotStart);
    let missing = format!(
        "the directory {} does not exist",
        dir.path().join("a").display()
    );
    assert!(cause(&report).1.starts_with(&missing), "{report:?}");
    let report = run("echo one; echo two >&2", FileMode::Truncate, true);
    assert_eq!(
        (report.exit_code, report.output.as_str()),
        (Some(0), "one\ntwo\n")
    );
    let content = || std::fs::read_to_string(dir.path().join("a/001.txt")).unwrap();
    assert_eq!(content(), "one\ntwo\n");
    let report = run("echo three", FileMode::Append, false);
    assert_eq!(
        (report.output.as_str(), content().as_str()),
        ("three\n", "one\ntwo\nthree\n")
    );
    run("echo four", FileMode::Truncate, false);
    assert_eq!(content(), "four\n");
}

#[test]
fn streams_can_be_split_and_discarded() {
    let report = run_with_terms("echo out; echo err >&2", |terms| {
        terms.output.stdout = Some("discard".into());
        terms.output.stderr = Some("keep".into());
    });
    assert_eq!(report.output, "err\n");
    let report = run_with_terms("echo x", |terms| {
        terms.output.stdout = Some("/dev/null".into());
    });
    assert!(
        cause(&report).1.contains("not a regular file"),
        "{report:?}"
    );
}

#[test]
fn a_program_that_cannot_be_started_is_named() {
    let start = |program: &str, directory: &str| {
        let report = run_with_terms("", |terms| {
            terms.command = vec![program.to_owned()];
            terms.working_directory = Some(directory.to_owned());
        });
        assert_eq!(report.cause(), EndCause::CannotStart);
        report.error.unwrap()
    };
    assert_eq!(
        start("/no/such", "/"),
        "\"/no/such\" does not exist on node-1"
    );
    assert!(start("no-such", "/").contains("was not found on node-1 in PATH"));
    assert!(start("/etc/passwd", "/").contains("is not executable on node-1"));
    assert!(start("/bin/true", "/no/dir").starts_with("the directory /no does not exist"));
}

#[test]
fn a_report_has_both_streams_and_the_exit_code() {
    let report = run_script("echo $COLOUR; pwd >&2; exit 7");
    assert_eq!(
        (report.exit_code, report.output.as_str()),
        (Some(7), "red\n/\n")
    );
    assert_eq!(run_script("kill -9 $$").signal, Some(9));
}

#[test]
fn only_the_end_of_the_output_is_reported_as_text() {
    let report = run_script("head -c 300000 /dev/zero; head -c 100000 /dev/urandom; echo end");
    assert!(report.output.len() <= OUTPUT_LIMIT && report.output.ends_with("end\n"));
    assert!(!report.output.contains('\0'));
}

#[test]
fn truncated_output_begins_with_a_complete_line() {
    let report = run_script("seq -f 'line number %g' 1 5000");
    let mut lines = report.output.lines();
    assert!(
        lines
            .next()
            .is_some_and(|line| line.starts_with("line number "))
    );
    assert!(report.output.len() > OUTPUT_LIMIT / 2 && report.output.ends_with(" 5000\n"));
    let single_line = run_script("head -c 9000 /dev/zero | tr '\\0' x");
    assert_eq!(
        single_line.output.len(),
        OUTPUT_LIMIT,
        "a line longer than the limit"
    );
}

#[test]
fn a_background_child_delays_nothing_and_is_killed() {
    let started_at = Instant::now();
    let report = run_script("sleep 300 & echo $!");
    assert!(started_at.elapsed().as_secs() < 100);
    let pid = report.output.trim().to_owned();
    let state = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let deadline = Instant::now() + std::time::Duration::from_secs(10);
    while !(state().is_empty() || state().contains(") Z ")) {
        assert!(Instant::now() < deadline, "process {pid} is still alive");
        std::thread::yield_now();
    }
}

#[test]
fn a_script_runs_with_the_arguments_of_its_task() {
    let dir = tempfile::tempdir().unwrap();
    let run = |text: &str| {
        let mut terms = terms_of("");
        terms.command = vec!["{task}".into()];
        terms.script = Some(ScriptSubmission {
            text: text.to_owned(),
            interpreter: Vec::new(),
            name: Some(format!("{}.sh", text.len())),
        });
        let mut task = task();
        task.arguments = vec!["a b".into()];
        let (mut launcher, _runner) = launcher(terms);
        launcher.context.work_dir = dir.path().to_owned();
        launcher.run(&order(task))
    };
    let report = run("#!/bin/sh -e\nfalse\necho no");
    assert_eq!((report.exit_code, report.output.as_str()), (Some(1), ""));
    let report = run("echo $1/$2 {task}; [ -r $HAYWARD_SCRIPT ] && echo script");
    assert_eq!(report.output, "1/a b {task}\nscript\n");
    let report = run("#!/no/such/interpreter");
    let message = "\"/no/such/interpreter\" does not exist on node-1";
    assert_eq!(cause(&report), (EndCause::CannotStart, message));
}

#[test]
fn a_pipe_in_place_of_the_output_file_delays_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("out").display().to_string();
    let script = format!("echo first; rm {file}; mkfifo {file}; echo last");
    let report = run_with_terms(&script, |terms| terms.output.stdout = Some(file.clone()));
    assert_eq!(
        (report.exit_code, report.output.as_str()),
        (Some(0), "first\nlast\n")
    );
}

#[test]
fn each_run_reads_its_input_from_the_beginning() {
    let (mut launcher, _runner) = launcher(RunTerms {
        stdin: Some(StdinSubmission::Text("one\ntwo\n".into())),
        ..terms_of("head -n 1; cat >/dev/null")
    });
    for _ in 0..2 {
        assert_eq!(launcher.run(&order(task())).output, "one\n");
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("1.in"), "of task 1\n").unwrap();
    let input = dir.path().join("{task}.in").display().to_string();
    let with_file = |path: String| {
        run_with_terms("cat", |terms| {
            terms.stdin = Some(StdinSubmission::File(path));
        })
    };
    assert_eq!(with_file(input).output, "of task 1\n");
    let report = with_file("/no/such/file".into());
    let start = "the directory /no does not exist on node-1";
    assert!(cause(&report).1.starts_with(start), "{report:?}");
    let report = with_file("/dev/zero".into());
    assert!(
        cause(&report).1.contains("of stdin cannot be read"),
        "{report:?}"
    );
}
