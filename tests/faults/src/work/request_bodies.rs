//! The bodies of submissions, and their programs.

use std::path::Path;

use hayward_job_converter_api::submission::{JobSubmission, ServiceSubmission};
use hayward_job_converter_api::unreachable::{UnreachableChoice, UnreachableWord};
use hayward_tests_fleet::{job, reservation, service};
use hayward_vocabulary::Size;
use serde_json::{Value, json};

use super::{EXCLUSIVE, Item};
use crate::plan::Work;

/// Returns the command of a task. It writes a line at its begin and at its end, each with a random
/// number of the kernel, which it also prints.
fn task(log: &Path, task: &str, rest_ms: u64, status: u8) -> Vec<String> {
    let log = log.display();
    let rest = format!("{}.{:03}", rest_ms / 1_000, rest_ms % 1_000);
    let script = format!(
        "read n < /proc/sys/kernel/random/uuid; echo start {task} $n >> {log}; \
         sleep {rest}; echo end {task} $n >> {log}; echo $n; exit {status}"
    );
    vec!["sh".into(), "-c".into(), script]
}

/// Program that holds a lock for its whole life, and writes a line when another process holds it.
const LIVES: &str = r#"
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

fn lives(item: &Item, word: &str) -> Vec<String> {
    let file = |name: &str| item.proofs.join(name).display().to_string();
    let mut command: Vec<String> = ["/usr/bin/perl", "-e", LIVES].map(str::to_owned).into();
    command.extend([file("log"), file("lock"), "{instance}".into(), word.into()]);
    command
}

fn jobs(item: &Item) -> Option<JobSubmission> {
    let log = item.proofs.join("log");
    let wanted = match item.work {
        Work::Job {
            tasks,
            rest_ms,
            queued,
        } => {
            let mut wanted = job(&[], tasks);
            wanted.command = task(&log, "{task}", rest_ms, 0);
            // Faults may end a run any number of times.
            wanted.max_attempts = Some(100);
            wanted.max_processes = Some(4);
            if queued {
                wanted.pool = Some("gangs".into());
                wanted.queue = Some("root.a".into());
            }
            wanted
        }
        Work::FailingJob { tasks } => {
            let mut wanted = job(&[], tasks);
            let mut command = task(&log, "{task}", 50, 0);
            command[2].push_str("; [ $(({task} % 2)) = 0 ] || exit 3");
            command[2] = command[2].replace("; exit 0", "");
            wanted.command = command;
            wanted.max_attempts = Some(2);
            wanted.max_processes = Some(2);
            wanted
        }
        _ => return None,
    };
    Some(JobSubmission {
        name: Some(item.key.clone()),
        ..wanted
    })
}

fn services(item: &Item) -> Option<ServiceSubmission> {
    let wanted = match item.work {
        Work::Service {
            instances,
            standbys,
        } => {
            let mut wanted = service(&[], instances);
            wanted.command = lives(item, "");
            wanted.standbys = Some(standbys);
            wanted
        }
        Work::ExclusiveService => {
            let mut wanted = service(&[], 1);
            wanted.command = lives(item, EXCLUSIVE);
            let exclusive = UnreachableChoice::Word(UnreachableWord::Exclusive);
            wanted.when_unreachable = Some(exclusive);
            wanted
        }
        _ => return None,
    };
    Some(ServiceSubmission {
        name: Some(item.key.clone()),
        ..wanted
    })
}

/// Returns the body of a POST, or of a PUT for a gang.
pub fn body(item: &Item) -> anyhow::Result<Value> {
    if let Some(job) = jobs(item) {
        return Ok(serde_json::to_value(job)?);
    }
    if let Some(service) = services(item) {
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
            "initial_size": 0,
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

/// Returns the tasks of a gang.
pub fn members(item: &Item) -> Value {
    let Work::Gang { members, rest_ms } = item.work else {
        return Value::Null;
    };
    let log = item.proofs.join("log");
    let one = |number: u32| {
        let id = number.to_string();
        let command = task(&log, &id, rest_ms, 0);
        json!({ "id": id, "task": { "command": command, "taskGroupName": "worker" } })
    };
    json!({ "tasks": (0..members).map(one).collect::<Vec<_>>() })
}
