//! Validation of submissions. All faults are reported at once, each with a JSON pointer (A8).

mod amounts;
mod orchestrator_map_entry;
mod retry;
mod run_terms;
mod service_processors;

use std::collections::{BTreeMap, BTreeSet};

use hayward_job_converter_api::submission::{
    ContainerSubmission, JobSubmission, ReservationSubmission, ServiceSubmission, Tasks,
};
use hayward_job_converter_api::unreachable::UnreachableChoice;
use hayward_service::http::problem::{Code, FieldFault, Problem};
use hayward_vocabulary::launch::{MIN_USER_ID, MOUNT_PREFIX, Mount, is_plain_path};
use hayward_vocabulary::{NodeName, Size, WhenUnreachable};

/// Maximum number of tasks of one job.
pub const MAX_TASKS: u64 = 10_000_000;
pub const MAX_ARGUMENT_VECTORS: usize = 100_000;
pub const MAX_LABELS: usize = 64;
pub const MAX_VARIABLES: usize = 1_024;
pub const MAX_NODES: usize = 10_000;
pub const MAX_ARGUMENTS: usize = 4_096;
pub const MAX_INSTANCES: u32 = 10_000;
pub const MAX_ATTEMPTS: u32 = 100;
pub const MAX_THREADS: u32 = 256;
pub const MAX_TEXT_LENGTH: usize = 4 * 1024;
/// Thirty days in milliseconds, the longest wait before a replacement. `wait` has no limit.
pub const MAX_WAIT_MS: u64 = 30 * 86_400_000;
const MAX_NAME_LENGTH: usize = 256;
/// Maximum length of a queue path, which has up to twenty names.
const MAX_QUEUE_LENGTH: usize = 1_300;
const MAX_EXTRAS: usize = 32;
const MAX_MOUNTS: usize = 16;
/// Limit of 64 TiB of memory. It exceeds any node, and sums of it do not overflow.
const MAX_MEMORY: u64 = 1 << 46;
/// Limit of 65,536 CPUs or GPUs, in thousandths.
const MAX_MILLI_CPU: u64 = 1 << 26;
/// Maximum number of faults. It limits the response to a long list of invalid values.
const MAX_FAULTS: usize = 100;

pub use amounts::amount_faults;
pub use orchestrator_map_entry::map_entry_faults;

/// Collects the faults of one submission.
#[derive(Default)]
struct Faults(Vec<FieldFault>);

impl Faults {
    fn add(&mut self, pointer: impl Into<String>, detail: impl Into<String>) {
        if self.0.len() < MAX_FAULTS {
            self.0.push(FieldFault {
                pointer: pointer.into(),
                detail: detail.into(),
            });
        }
    }

    fn check(&mut self, is_valid: bool, pointer: &str, detail: impl FnOnce() -> String) {
        if !is_valid {
            self.add(pointer, detail());
        }
    }

    fn check_text(&mut self, pointer: impl FnOnce() -> String, text: &str, limit: usize) {
        if text.len() > limit {
            self.add(pointer(), format!("longer than {limit} bytes"));
        } else if text.contains('\0') {
            self.add(pointer(), "has a NUL character");
        }
    }

    fn check_arguments(&mut self, pointer: &str, arguments: &[String]) {
        self.check(arguments.len() <= MAX_ARGUMENTS, pointer, || {
            format!("more than {MAX_ARGUMENTS} words")
        });
        for (index, argument) in arguments.iter().enumerate().take(MAX_ARGUMENTS) {
            self.check_text(|| format!("{pointer}/{index}"), argument, MAX_TEXT_LENGTH);
        }
    }

    fn check_command(&mut self, command: &[String]) {
        let has_program = command.first().is_some_and(|program| !program.is_empty());
        self.check(has_program, "/command", || "names no program".to_owned());
        self.check_arguments("/command", command);
    }

    fn check_names(&mut self, name: Option<&String>, class: Option<&String>) {
        for (pointer, name) in [("/name", name), ("/class", class)] {
            if let Some(name) = name {
                self.check(!name.trim().is_empty(), pointer, || "is empty".to_owned());
                self.check_text(|| pointer.to_owned(), name, MAX_NAME_LENGTH);
            }
        }
    }

    /// Checks only the form of `queue`, `pool` and `priority`. The policy decides which queues
    /// exist.
    fn check_queue(
        &mut self,
        class: Option<&String>,
        queue_fields: (&Option<String>, &Option<String>, Option<i32>),
    ) {
        let (queue, pool, priority) = queue_fields;
        for (pointer, name) in [("/queue", queue), ("/pool", pool)] {
            if let Some(name) = name {
                self.check(!name.trim().is_empty(), pointer, || "is empty".to_owned());
                self.check_text(|| pointer.to_owned(), name, MAX_QUEUE_LENGTH);
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

    fn check_map(&mut self, pointer: &str, map: &BTreeMap<String, String>, limit: usize) {
        self.check(map.len() <= limit, pointer, || {
            format!("more than {limit} entries")
        });
        for (key, value) in map.iter().take(limit) {
            let pointer_of_key =
                || format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1"));
            self.check_text(pointer_of_key, key, MAX_NAME_LENGTH);
            self.check_text(pointer_of_key, value, MAX_TEXT_LENGTH);
            if key.is_empty() {
                self.add(pointer_of_key(), "has an empty name");
            }
        }
    }

    fn check_environment(&mut self, variables: &BTreeMap<String, String>) {
        self.check_map("/environment", variables, MAX_VARIABLES);
        if variables.keys().any(|name| name.contains('=')) {
            self.add("/environment", "a variable's name has '='");
        }
    }

    fn check_directory(&mut self, directory: Option<&String>) {
        self.check_directory_at("/working_directory", directory);
    }

    fn check_directory_at(&mut self, pointer: &str, directory: Option<&String>) {
        if let Some(directory) = directory {
            self.check(directory.starts_with('/'), pointer, || {
                "is not absolute".to_owned()
            });
            self.check_text(|| pointer.to_owned(), directory, MAX_TEXT_LENGTH);
        }
    }

    fn check_container(&mut self, container: Option<&ContainerSubmission>) {
        let Some(container) = container else { return };
        let image = &container.image;
        self.check_text(|| "/container/image".to_owned(), image, MAX_NAME_LENGTH);
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/:@".contains(&byte);
        let has_valid_start = image.starts_with(|c: char| c.is_ascii_alphanumeric());
        // An image name such as `http://…` would fail on every node.
        let is_complete = !image.contains("//") && !image.ends_with(['/', ':', '@']);
        self.check(
            image.bytes().all(is_allowed) && has_valid_start && is_complete,
            "/container/image",
            || "is not a valid image; use name:tag, registry/name:tag or name@digest".to_owned(),
        );
        self.check_mounts(&container.mounts);
        // Work never runs as a system account (S16).
        for (pointer, id) in [
            ("/container/uid", container.uid),
            ("/container/gid", container.gid),
        ] {
            self.check(id.is_none_or(|id| id >= MIN_USER_ID), pointer, || {
                format!("must be {MIN_USER_ID} or more: work cannot run as a system account")
            });
        }
    }

    /// Checks only the form. The policy decides which directories pools offer (S21).
    fn check_mounts(&mut self, mounts: &[Mount]) {
        self.check(mounts.len() <= MAX_MOUNTS, "/container/mounts", || {
            format!("more than {MAX_MOUNTS}")
        });
        let mut targets = BTreeSet::new();
        for (index, mount) in mounts.iter().enumerate().take(MAX_MOUNTS) {
            let paths = [("source", &mount.source), ("target", &mount.target)];
            for (field, path) in paths {
                let pointer = format!("/container/mounts/{index}/{field}");
                self.check(is_plain_path(path), &pointer, || {
                    "must be an absolute path without `.`, `..` or extra slashes, such as /srv/data"
                        .to_owned()
                });
            }
            let pointer = format!("/container/mounts/{index}/target");
            self.check(targets.insert(&mount.target), &pointer, || {
                "is the target of another mount".to_owned()
            });
        }
    }

    fn check_size(&mut self, size: Option<&Size>) {
        let Some(size) = size else { return };
        self.check(
            size.memory_bytes <= MAX_MEMORY,
            "/size/memory_bytes",
            || format!("more than {MAX_MEMORY} bytes"),
        );
        for (pointer, milli) in [
            ("/size/cpu_milli", size.cpu_milli),
            ("/size/gpu_milli", size.gpu_milli),
        ] {
            self.check(milli <= MAX_MILLI_CPU, pointer, || {
                format!("more than {MAX_MILLI_CPU}")
            });
        }
        self.check(size.extras.len() <= MAX_EXTRAS, "/size/extras", || {
            format!("more than {MAX_EXTRAS} resources")
        });
        for (name, amount) in size.extras.iter().take(MAX_EXTRAS) {
            self.check_text(|| "/size/extras".to_owned(), name, MAX_NAME_LENGTH);
            self.check(!name.starts_with(MOUNT_PREFIX), "/size/extras", || {
                format!("{name}: ask for it as one of `container`'s `mounts`")
            });
            self.check(*amount <= MAX_MEMORY, "/size/extras", || {
                format!("{name} is more than {MAX_MEMORY}")
            });
        }
    }

    fn check_machines(&mut self, machines: &[NodeName]) {
        self.check(machines.len() <= MAX_NODES, "/machines", || {
            format!("more than {MAX_NODES} nodes")
        });
    }

    /// Checks the reaction to an unreachable node, and the disruption limit.
    fn check_disruption(&mut self, choice: Option<UnreachableChoice>, limit: Option<u64>) {
        if let Some(WhenUnreachable::ReplaceAfter { ms }) = choice.map(UnreachableChoice::meaning) {
            let field = match choice {
                Some(UnreachableChoice::After(_)) => "/when_unreachable/replace_after_ms",
                _ => "/when_unreachable/ms",
            };
            self.check((1..=MAX_WAIT_MS).contains(&ms), field, || {
                format!(
                    "must be 1 to {MAX_WAIT_MS}; \"replace\" does not wait, \"wait\" waits for \
                     ever"
                )
            });
        }
        let limit = limit.unwrap_or(1);
        self.check(
            (1..=MAX_TASKS).contains(&limit),
            "/disruption_limit",
            || format!("must be 1 to {MAX_TASKS}: without any, no drain could end"),
        );
    }

    fn check_tasks(&mut self, tasks: &Tasks) {
        match tasks {
            Tasks::Count(count) => {
                self.check((1..=MAX_TASKS).contains(count), "/tasks/count", || {
                    format!("must be 1 to {MAX_TASKS}")
                });
            }
            Tasks::Arguments(vectors) => {
                self.check(
                    (1..=MAX_ARGUMENT_VECTORS).contains(&vectors.len()),
                    "/tasks/arguments",
                    || {
                        format!(
                            "must be 1 to {MAX_ARGUMENT_VECTORS} argument vectors; split the job, \
                             or use `count` and let each task look up its arguments by its number"
                        )
                    },
                );
                for (index, arguments) in vectors.iter().enumerate().take(MAX_ARGUMENT_VECTORS) {
                    self.check_arguments(&format!("/tasks/arguments/{index}"), arguments);
                }
            }
        }
    }

    fn into_result(self) -> Result<(), Vec<FieldFault>> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(self.0)
        }
    }
}

/// Returns the faults of a program. `directory_at` is the JSON pointer of the working directory.
pub fn program_faults(
    command: &[String],
    environment: &BTreeMap<String, String>,
    directory: Option<&String>,
    directory_at: &str,
) -> Vec<FieldFault> {
    let mut faults = Faults::default();
    faults.check_command(command);
    faults.check_environment(environment);
    faults.check_directory_at(directory_at, directory);
    faults.0
}

/// Returns the faults of a map of texts.
pub fn map_faults(pointer: &str, map: &BTreeMap<String, String>, limit: usize) -> Vec<FieldFault> {
    let mut faults = Faults::default();
    faults.check_map(pointer, map, limit);
    faults.0
}

pub fn check_job(job: &JobSubmission) -> Result<(), Vec<FieldFault>> {
    let mut faults = Faults::default();
    faults.check_names(job.name.as_ref(), job.class.as_ref());
    faults.check_queue(job.class.as_ref(), (&job.queue, &job.pool, job.priority));
    run_terms::check_command(&mut faults, job);
    if job.container.is_some() {
        let detail = "a job's tasks are run by a task runner that is not inside any image; leave \
                      it out, or submit a service";
        faults.add("/container", detail);
    }
    faults.check_tasks(&job.tasks);
    faults.check_environment(&job.environment);
    faults.check_directory(job.working_directory.as_ref());
    faults.check_size(job.size.as_ref());
    let processes = job.max_processes.unwrap_or(1);
    faults.check(
        (1..=MAX_TASKS).contains(&processes),
        "/max_processes",
        || format!("must be 1 to {MAX_TASKS}"),
    );
    let threads = job.threads.unwrap_or(1);
    faults.check((1..=MAX_THREADS).contains(&threads), "/threads", || {
        format!("must be 1 to {MAX_THREADS}")
    });
    let attempts = job.max_attempts.unwrap_or(1);
    faults.check(
        (1..=MAX_ATTEMPTS).contains(&attempts),
        "/max_attempts",
        || format!("must be 1 to {MAX_ATTEMPTS}"),
    );
    retry::check_retry(&mut faults, job);
    run_terms::check_run_terms(&mut faults, job);
    faults.check_disruption(job.when_unreachable, job.disruption_limit);
    faults.check_machines(&job.machines);
    faults.check_map("/labels", &job.labels, MAX_LABELS);
    faults.into_result()
}

pub fn check_service(service: &ServiceSubmission) -> Result<(), Vec<FieldFault>> {
    let mut faults = Faults::default();
    faults.check_names(service.name.as_ref(), service.class.as_ref());
    let queue_fields = (&service.queue, &service.pool, service.priority);
    faults.check_queue(service.class.as_ref(), queue_fields);
    faults.check_command(&service.command);
    faults.check_container(service.container.as_ref());
    let unreachable_choice = service.when_unreachable.map(UnreachableChoice::meaning);
    if service.container.is_some() && unreachable_choice == Some(WhenUnreachable::Exclusive) {
        // Only the engine could end it when the node's lease expires (I4).
        let detail = "work in a container cannot be exclusive; leave out `container`, or choose \
                      `wait`, `replace` or `replace_after_ms`";
        faults.add("/when_unreachable", detail);
    }
    let instances = service.instances.unwrap_or(1);
    faults.check(
        (1..=MAX_INSTANCES).contains(&instances),
        "/instances",
        || format!("must be 1 to {MAX_INSTANCES}"),
    );
    faults.check_environment(&service.environment);
    faults.check_directory(service.working_directory.as_ref());
    faults.check_size(service.size.as_ref());
    service_processors::check_processor_settings(&mut faults, service);
    faults.check_disruption(service.when_unreachable, service.disruption_limit);
    faults.check_machines(&service.machines);
    faults.check_map("/labels", &service.labels, MAX_LABELS);
    faults.into_result()
}

pub fn check_reservation(reservation: &ReservationSubmission) -> Result<(), Vec<FieldFault>> {
    let mut faults = Faults::default();
    faults.check_names(reservation.name.as_ref(), reservation.class.as_ref());
    faults.check_size(reservation.size.as_ref());
    faults.check_machines(&reservation.machines);
    faults.check_map("/labels", &reservation.labels, MAX_LABELS);
    faults.into_result()
}

/// Returns the response for a submission with faults.
pub fn into_problem(faults: Vec<FieldFault>) -> Problem {
    faults.into_iter().fold(
        Problem::new(Code::Invalid, "some fields are invalid"),
        |problem, fault| problem.at(fault.pointer, fault.detail),
    )
}

/// Returns all faults in one line, for results of a bulk request.
pub fn faults_text(faults: &[FieldFault]) -> String {
    let texts = faults
        .iter()
        .map(|fault| format!("{}: {}", fault.pointer, fault.detail));
    texts.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests;
