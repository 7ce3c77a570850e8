//! Builds the request bodies of submissions, with the programs that write proofs.

use std::path::Path;

use hayward_job_converter_api::submission::{JobSubmission, ServiceSubmission};
use hayward_job_converter_api::unreachable::{UnreachableChoice, UnreachableWord};
use hayward_tests_fleet::{job, reservation, service};
use hayward_vocabulary::Size;
use serde_json::{Value, json};

use super::{EXCLUSIVE, Item};
use crate::plan::Work;

/// Last statement of the script of a task that always succeeds.
const SUCCEED: &str = "exit 0";
/// Last statement of the script of a task that fails if its number is odd.
const FAIL_IF_ODD: &str = "[ $(({task} % 2)) = 0 ] || exit 3";

/// Returns the command of a task. Each run reads a random number from the kernel, writes a line
/// with that number at its start and at its end, and prints the number. Hayward replaces `{task}`
/// in the command with the number of the task.
fn task_command(log: &Path, task: &str, sleep_ms: u64, last_statement: &str) -> Vec<String> {
    let log = log.display();
    let seconds = format!("{}.{:03}", sleep_ms / 1_000, sleep_ms % 1_000);
    let script = format!(
        "read n < /proc/sys/kernel/random/uuid; echo start {task} $n >> {log}; \
         sleep {seconds}; echo end {task} $n >> {log}; echo $n; {last_statement}"
    );
    vec!["sh".into(), "-c".into(), script]
}

/// Perl program of a service process. It holds a lock while it runs. With the argument for
/// exclusive work, it writes a line that begins with `twice` if another process holds the lock.
const SERVICE_PROGRAM: &str = r#"
use Fcntl qw(:flock);
my ($log, $lock, $instance, $word) = @ARGV;
my $say = sub {
    open(my $out, ">>", $log) or return;
    syswrite($out, join(" ", @_, $instance, $ENV{HAYWARD_ALLOCATION}) . "\n");
};
open(my $held, ">>", "$lock.$instance") or die "no lock: $!";
my $alone = flock($held, LOCK_EX | LOCK_NB);
$say->("twice") if $word && !$alone;
$say->("start");
$SIG{TERM} = sub { $say->("end"); exit 0 };
while (1) { select(undef, undef, undef, 0.2) }
"#;

fn service_command(item: &Item, exclusive_mark: &str) -> Vec<String> {
    let file = |name: &str| item.proofs.join(name).display().to_string();
    let mut command: Vec<String> = ["/usr/bin/perl", "-e", SERVICE_PROGRAM]
        .map(str::to_owned)
        .into();
    command.extend([
        file("log"),
        file("lock"),
        "{instance}".into(),
        exclusive_mark.into(),
    ]);
    command
}

fn job_submission(item: &Item) -> Option<JobSubmission> {
    let log = item.proofs.join("log");
    let submission = match item.work {
        Work::Job {
            tasks,
            sleep_ms,
            queued,
        } => {
            let mut submission = job(&[], tasks);
            submission.command = task_command(&log, "{task}", sleep_ms, SUCCEED);
            // Faults may end a run any number of times.
            submission.max_attempts = Some(100);
            submission.max_processes = Some(4);
            if queued {
                submission.pool = Some("gangs".into());
                submission.queue = Some("root.a".into());
            }
            submission
        }
        Work::FailingJob { tasks } => {
            let mut submission = job(&[], tasks);
            submission.command = task_command(&log, "{task}", 50, FAIL_IF_ODD);
            submission.max_attempts = Some(2);
            submission.max_processes = Some(2);
            submission
        }
        _ => return None,
    };
    Some(JobSubmission {
        name: Some(item.key.clone()),
        ..submission
    })
}

fn service_submission(item: &Item) -> Option<ServiceSubmission> {
    let submission = match item.work {
        Work::Service {
            instances,
            standbys,
        } => {
            let mut submission = service(&[], instances);
            submission.command = service_command(item, "");
            submission.standbys = Some(standbys);
            submission
        }
        Work::ExclusiveService => {
            let mut submission = service(&[], 1);
            submission.command = service_command(item, EXCLUSIVE);
            let exclusive = UnreachableChoice::Word(UnreachableWord::Exclusive);
            submission.when_unreachable = Some(exclusive);
            submission
        }
        _ => return None,
    };
    Some(ServiceSubmission {
        name: Some(item.key.clone()),
        ..submission
    })
}

/// Returns the request body that submits an item: the body of a PUT for a gang, of a POST for other
/// work.
pub fn submission_body(item: &Item) -> anyhow::Result<Value> {
    if let Some(job) = job_submission(item) {
        return Ok(serde_json::to_value(job)?);
    }
    if let Some(service) = service_submission(item) {
        return Ok(serde_json::to_value(service)?);
    }
    let folder = item.proofs.display();
    Ok(match item.work {
        Work::Gang { members, .. } => json!({
            "queueName": "root.a",
            "pool": "gangs",
            "taskGroups": [{
                "name": "worker", "minMember": members, "minResource": { "memory": "1Gi" },
            }],
        }),
        Work::Pool { .. } => json!({
            "job_id": item.key,
            "mode": "managed",
            // The owner of the pool sets the size later.
            "initial_size": 0,
            // -1 means that any number of workers may fail.
            "max_failed": -1,
            "user": "ada",
            "worker_spec": {
                "command": [
                    "sh", "-c", format!("echo $$ > {folder}/$HAYWARD_WORKER; exec sleep 1000"),
                ],
                "size": Size::memory(64 << 20),
                "stop_grace_ms": 500,
            },
        }),
        _ => serde_json::to_value(reservation())?,
    })
}

/// Returns the request body that adds the tasks of a gang.
pub fn gang_tasks(item: &Item) -> Value {
    let Work::Gang { members, sleep_ms } = item.work else {
        return Value::Null;
    };
    let log = item.proofs.join("log");
    let gang_task = |number: u32| {
        let id = number.to_string();
        let command = task_command(&log, &id, sleep_ms, SUCCEED);
        json!({ "id": id, "task": { "command": command, "taskGroupName": "worker" } })
    };
    json!({ "tasks": (0..members).map(gang_task).collect::<Vec<_>>() })
}
