//! What a submission may say. All faults are told at once, each with a JSON pointer (A8, A9).

mod amounts;
mod orchestrated;
mod processors;

use std::collections::{BTreeMap, BTreeSet};

use hayward_job_converter_api::submission::{
    ContainerSubmission, JobSubmission, ReservationSubmission, ServiceSubmission, Tasks,
};
use hayward_job_converter_api::unreachable::UnreachableChoice;
use hayward_service::http::problem::{Code, FieldFault, Problem};
use hayward_vocabulary::launch::{LEAST_ID, MOUNT, Mount, is_plain_path};
use hayward_vocabulary::{NodeName, Size, WhenUnreachable};

pub const MOST_TASKS: u64 = 10_000_000;
pub const MOST_VECTORS: usize = 100_000;
pub const MOST_LABELS: usize = 64;
pub const MOST_VARIABLES: usize = 1_024;
pub const MOST_MACHINES: usize = 10_000;
pub const MOST_WORDS: usize = 4_096;
pub const MOST_INSTANCES: u32 = 10_000;
pub const MOST_ATTEMPTS: u32 = 100;
pub const MOST_THREADS: u32 = 256;
pub const LONGEST_TEXT: usize = 4 * 1024;
/// Thirty days: whoever wants to wait longer wants to wait.
pub const LONGEST_WAIT_MS: u64 = 30 * 86_400_000;
const LONGEST_NAME: usize = 256;
/// Twenty levels of names.
const LONGEST_QUEUE: usize = 1_300;
const MOST_EXTRAS: usize = 32;
const MOST_MOUNTS: usize = 16;
/// 64 TiB of memory and 65,536 cpus: more than any machine, and far from overflow.
const MOST_MEMORY: u64 = 1 << 46;
const MOST_MILLI: u64 = 1 << 26;
/// More faults than anyone reads; a list of a million bad words gets a short answer.
const MOST_FAULTS: usize = 100;

pub use amounts::amounts;
pub use orchestrated::orchestrated;

#[derive(Default)]
struct Faults(Vec<FieldFault>);

impl Faults {
    fn add(&mut self, pointer: impl Into<String>, detail: impl Into<String>) {
        if self.0.len() < MOST_FAULTS {
            self.0.push(FieldFault {
                pointer: pointer.into(),
                detail: detail.into(),
            });
        }
    }

    fn check(&mut self, good: bool, pointer: &str, detail: impl FnOnce() -> String) {
        if !good {
            self.add(pointer, detail());
        }
    }

    fn text(&mut self, pointer: impl FnOnce() -> String, text: &str, limit: usize) {
        if text.len() > limit {
            self.add(pointer(), format!("longer than {limit} bytes"));
        } else if text.contains('\0') {
            self.add(pointer(), "has a NUL character");
        }
    }

    fn words(&mut self, pointer: &str, words: &[String]) {
        self.check(words.len() <= MOST_WORDS, pointer, || {
            format!("more than {MOST_WORDS} words")
        });
        for (at, word) in words.iter().enumerate().take(MOST_WORDS) {
            self.text(|| format!("{pointer}/{at}"), word, LONGEST_TEXT);
        }
    }

    fn command(&mut self, command: &[String]) {
        let named = command.first().is_some_and(|program| !program.is_empty());
        self.check(named, "/command", || "names no program".to_owned());
        self.words("/command", command);
    }

    fn names(&mut self, name: Option<&String>, class: Option<&String>) {
        for (pointer, name) in [("/name", name), ("/class", class)] {
            if let Some(name) = name {
                self.check(!name.trim().is_empty(), pointer, || "is empty".to_owned());
                self.text(|| pointer.to_owned(), name, LONGEST_NAME);
            }
        }
    }

    /// Which queue there is, is the policy's to say; here only that it is one.
    fn queue(
        &mut self,
        class: Option<&String>,
        asked: (&Option<String>, &Option<String>, Option<i32>),
    ) {
        let (queue, pool, priority) = asked;
        for (pointer, name) in [("/queue", queue), ("/pool", pool)] {
            if let Some(name) = name {
                self.check(!name.trim().is_empty(), pointer, || "is empty".to_owned());
                self.text(|| pointer.to_owned(), name, LONGEST_QUEUE);
            }
        }
        let in_queue = queue.is_some() || pool.is_some();
        self.check(!in_queue || class.is_none(), "/class", || {
            "work in a queue has no class: leave out `class`, or `queue` and `pool`".to_owned()
        });
        self.check(in_queue || priority.is_none(), "/priority", || {
            "counts in queues only: name a `queue`, or leave it out".to_owned()
        });
    }

    fn map(&mut self, pointer: &str, map: &BTreeMap<String, String>, limit: usize) {
        self.check(map.len() <= limit, pointer, || {
            format!("more than {limit} entries")
        });
        for (key, value) in map.iter().take(limit) {
            let at = || format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1"));
            self.text(at, key, LONGEST_NAME);
            self.text(at, value, LONGEST_TEXT);
            if key.is_empty() {
                self.add(at(), "has an empty name");
            }
        }
    }

    fn environment(&mut self, variables: &BTreeMap<String, String>) {
        self.map("/environment", variables, MOST_VARIABLES);
        if variables.keys().any(|name| name.contains('=')) {
            self.add("/environment", "a variable's name has '='");
        }
    }

    fn directory(&mut self, directory: Option<&String>) {
        self.directory_at("/working_directory", directory);
    }

    fn directory_at(&mut self, pointer: &str, directory: Option<&String>) {
        if let Some(directory) = directory {
            self.check(directory.starts_with('/'), pointer, || {
                "is not absolute".to_owned()
            });
            self.text(|| pointer.to_owned(), directory, LONGEST_TEXT);
        }
    }

    fn container(&mut self, container: Option<&ContainerSubmission>) {
        let Some(container) = container else { return };
        let image = &container.image;
        self.text(|| "/container/image".to_owned(), image, LONGEST_NAME);
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/:@".contains(&byte);
        let begins = image.starts_with(|c: char| c.is_ascii_alphanumeric());
        // An address as `http://…` would only fail on the node, again and again.
        let whole = !image.contains("//") && !image.ends_with(['/', ':', '@']);
        self.check(
            image.bytes().all(plain) && begins && whole,
            "/container/image",
            || "is no image: it is written name:tag, registry/name:tag or name@digest".to_owned(),
        );
        self.mounts(&container.mounts);
        // S16
        for (pointer, id) in [
            ("/container/uid", container.uid),
            ("/container/gid", container.gid),
        ] {
            self.check(id.is_none_or(|id| id >= LEAST_ID), pointer, || {
                format!("must be {LEAST_ID} or more: work never runs as a system account")
            });
        }
    }

    /// S21: which directories there are is the policy's to say; here only that they are ones.
    fn mounts(&mut self, mounts: &[Mount]) {
        self.check(mounts.len() <= MOST_MOUNTS, "/container/mounts", || {
            format!("more than {MOST_MOUNTS}")
        });
        let mut targets = BTreeSet::new();
        for (at, mount) in mounts.iter().enumerate().take(MOST_MOUNTS) {
            let paths = [("source", &mount.source), ("target", &mount.target)];
            for (field, path) in paths {
                let pointer = format!("/container/mounts/{at}/{field}");
                self.check(is_plain_path(path), &pointer, || {
                    "is no absolute path in its shortest form, as /srv/data".to_owned()
                });
            }
            let pointer = format!("/container/mounts/{at}/target");
            self.check(targets.insert(&mount.target), &pointer, || {
                "is the target of another mount".to_owned()
            });
        }
    }

    fn size(&mut self, size: Option<&Size>) {
        let Some(size) = size else { return };
        self.check(
            size.memory_bytes <= MOST_MEMORY,
            "/size/memory_bytes",
            || format!("more than {MOST_MEMORY} bytes"),
        );
        for (pointer, milli) in [
            ("/size/cpu_milli", size.cpu_milli),
            ("/size/gpu_milli", size.gpu_milli),
        ] {
            self.check(milli <= MOST_MILLI, pointer, || {
                format!("more than {MOST_MILLI}")
            });
        }
        self.check(size.extras.len() <= MOST_EXTRAS, "/size/extras", || {
            format!("more than {MOST_EXTRAS} resources")
        });
        for (name, amount) in size.extras.iter().take(MOST_EXTRAS) {
            self.text(|| "/size/extras".to_owned(), name, LONGEST_NAME);
            self.check(!name.starts_with(MOUNT), "/size/extras", || {
                format!("{name}: ask for it as one of `container`'s `mounts`")
            });
            self.check(*amount <= MOST_MEMORY, "/size/extras", || {
                format!("{name} is more than {MOST_MEMORY}")
            });
        }
    }

    fn machines(&mut self, machines: &[NodeName]) {
        self.check(machines.len() <= MOST_MACHINES, "/machines", || {
            format!("more than {MOST_MACHINES} machines")
        });
    }

    fn disruption(&mut self, choice: Option<UnreachableChoice>, limit: Option<u64>) {
        if let Some(WhenUnreachable::ReplaceAfter { ms }) = choice.map(UnreachableChoice::meaning) {
            let field = match choice {
                Some(UnreachableChoice::After(_)) => "/when_unreachable/replace_after_ms",
                _ => "/when_unreachable/ms",
            };
            self.check((1..=LONGEST_WAIT_MS).contains(&ms), field, || {
                format!(
                    "must be 1 to {LONGEST_WAIT_MS}; \"replace\" does not wait, \"wait\" waits for \
                     ever"
                )
            });
        }
        let limit = limit.unwrap_or(1);
        self.check(
            (1..=MOST_TASKS).contains(&limit),
            "/disruption_limit",
            || format!("must be 1 to {MOST_TASKS}: with none at all, no drain would ever end"),
        );
    }

    fn tasks(&mut self, tasks: &Tasks) {
        match tasks {
            Tasks::Count(count) => {
                self.check((1..=MOST_TASKS).contains(count), "/tasks/count", || {
                    format!("must be 1 to {MOST_TASKS}")
                });
            }
            Tasks::Arguments(vectors) => {
                self.check(
                    (1..=MOST_VECTORS).contains(&vectors.len()),
                    "/tasks/arguments",
                    || {
                        format!(
                            "must be 1 to {MOST_VECTORS} argument vectors; split the job, or use \
                             `count` and let each task look up its arguments by its number"
                        )
                    },
                );
                for (at, words) in vectors.iter().enumerate().take(MOST_VECTORS) {
                    self.words(&format!("/tasks/arguments/{at}"), words);
                }
            }
        }
    }

    fn end(self) -> Result<(), Vec<FieldFault>> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(self.0)
        }
    }
}

/// Faults of a program: its command, its environment and its directory, which bears this name.
pub fn program(
    (command, environment, directory): (&[String], &BTreeMap<String, String>, Option<&String>),
    directory_at: &str,
) -> Vec<FieldFault> {
    let mut faults = Faults::default();
    faults.command(command);
    faults.environment(environment);
    faults.directory_at(directory_at, directory);
    faults.0
}

/// Faults of a map of texts.
pub fn map(pointer: &str, map: &BTreeMap<String, String>, limit: usize) -> Vec<FieldFault> {
    let mut faults = Faults::default();
    faults.map(pointer, map, limit);
    faults.0
}

pub fn job(job: &JobSubmission) -> Result<(), Vec<FieldFault>> {
    let mut faults = Faults::default();
    faults.names(job.name.as_ref(), job.class.as_ref());
    faults.queue(job.class.as_ref(), (&job.queue, &job.pool, job.priority));
    faults.command(&job.command);
    if job.container.is_some() {
        let detail = "a job's tasks are run by a task runner that is not inside any image; leave \
                      it out, or submit a service";
        faults.add("/container", detail);
    }
    faults.tasks(&job.tasks);
    faults.environment(&job.environment);
    faults.directory(job.working_directory.as_ref());
    faults.size(job.size.as_ref());
    let processes = job.max_processes.unwrap_or(1);
    faults.check(
        (1..=MOST_TASKS).contains(&processes),
        "/max_processes",
        || format!("must be 1 to {MOST_TASKS}"),
    );
    let threads = job.threads.unwrap_or(1);
    faults.check((1..=MOST_THREADS).contains(&threads), "/threads", || {
        format!("must be 1 to {MOST_THREADS}")
    });
    let attempts = job.max_attempts.unwrap_or(1);
    faults.check(
        (1..=MOST_ATTEMPTS).contains(&attempts),
        "/max_attempts",
        || format!("must be 1 to {MOST_ATTEMPTS}"),
    );
    faults.disruption(job.when_unreachable, job.disruption_limit);
    faults.machines(&job.machines);
    faults.map("/labels", &job.labels, MOST_LABELS);
    faults.end()
}

pub fn service(service: &ServiceSubmission) -> Result<(), Vec<FieldFault>> {
    let mut faults = Faults::default();
    faults.names(service.name.as_ref(), service.class.as_ref());
    let asked = (&service.queue, &service.pool, service.priority);
    faults.queue(service.class.as_ref(), asked);
    faults.command(&service.command);
    faults.container(service.container.as_ref());
    let exclusive = service.when_unreachable.map(UnreachableChoice::meaning);
    if service.container.is_some() && exclusive == Some(WhenUnreachable::Exclusive) {
        // Nobody beside the engine could end it when the lease of the node runs out (I4).
        let detail = "work in a container cannot be exclusive; leave out `container`, or choose \
                      `wait`, `replace` or `replace_after_ms`";
        faults.add("/when_unreachable", detail);
    }
    let instances = service.instances.unwrap_or(1);
    faults.check(
        (1..=MOST_INSTANCES).contains(&instances),
        "/instances",
        || format!("must be 1 to {MOST_INSTANCES}"),
    );
    faults.environment(&service.environment);
    faults.directory(service.working_directory.as_ref());
    faults.size(service.size.as_ref());
    processors::look(&mut faults, service);
    faults.disruption(service.when_unreachable, service.disruption_limit);
    faults.machines(&service.machines);
    faults.map("/labels", &service.labels, MOST_LABELS);
    faults.end()
}

pub fn reservation(reservation: &ReservationSubmission) -> Result<(), Vec<FieldFault>> {
    let mut faults = Faults::default();
    faults.names(reservation.name.as_ref(), reservation.class.as_ref());
    faults.size(reservation.size.as_ref());
    faults.machines(&reservation.machines);
    faults.map("/labels", &reservation.labels, MOST_LABELS);
    faults.end()
}

pub fn problem(faults: Vec<FieldFault>) -> Problem {
    faults.into_iter().fold(
        Problem::new(Code::Invalid, "some fields are invalid"),
        |problem, fault| problem.at(fault.pointer, fault.detail),
    )
}

/// For a result among others, which has no room for a problem.
pub fn in_words(faults: &[FieldFault]) -> String {
    let words = faults
        .iter()
        .map(|fault| format!("{}: {}", fault.pointer, fault.detail));
    words.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests;
