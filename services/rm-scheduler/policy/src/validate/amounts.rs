//! Validation of amounts: the quantum, the tunables and the allotments of users.

use hayward_rm_scheduler_api::policy::{Policy, Tunables, UserPolicy};
use hayward_vocabulary::{Quantum, UserName};

use super::{MAX_GB, list_existing};
use crate::fault::Faults;
use crate::translate::MAX_PERCENT;

/// Minimum memory of a quantum in bytes. With a smaller quantum the numbers of quanta would
/// overflow.
const MIN_QUANTUM: u64 = 1 << 20;
/// Maximum amount of thousandths.
const MAX_MILLI: u64 = 1_000_000_000;
/// Milliseconds of a year of 366 days.
const YEAR_MS: u64 = 366 * 24 * 3_600_000;
const MAX_PROCESSES: u64 = 1_000_000_000;
const MAX_CHURN_ROUNDS: u64 = 1_000_000;

pub(super) fn check(policy: &Policy, faults: &mut Faults) {
    check_quantum(&["quantum"], &policy.quantum, faults);
    check_tunables(&policy.tunables, faults);
    if policy.profile.is_some() && policy.preset.is_some() {
        let detail = "is the old name of `profile`: keep one of the two";
        faults.add(&["preset"], detail);
    }
    if policy
        .settings
        .churn_rounds
        .is_some_and(|rounds| rounds > MAX_CHURN_ROUNDS)
    {
        let detail = format!("must be at most {MAX_CHURN_ROUNDS}");
        faults.add(&["settings", "churn_rounds"], detail);
    }
    let settings = &policy.settings;
    for (field, percent) in [
        (
            "preemption_pool_percent_per_hour",
            settings.preemption_pool_percent_per_hour,
        ),
        (
            "preemption_user_percent_per_hour",
            settings.preemption_user_percent_per_hour,
        ),
    ] {
        if percent.is_some_and(|percent| percent > MAX_PERCENT) {
            let detail = format!("must be at most {MAX_PERCENT}, which is no limit");
            faults.add(&["settings", field], detail);
        }
    }
    for (name, user) in &policy.users {
        check_user(policy, name, user, faults);
    }
}

/// Checks that each amount of a quantum is within its limits.
pub(super) fn check_quantum(path: &[&str], quantum: &Quantum, faults: &mut Faults) {
    let mut add_fault = |field: &str, detail: String| {
        let mut steps = path.to_vec();
        steps.push(field);
        faults.add(&steps, detail);
    };
    let size = &quantum.0;
    if size.memory_bytes < MIN_QUANTUM {
        let detail = format!("must be at least {MIN_QUANTUM} bytes (1 MiB)");
        add_fault("memory_bytes", detail);
    }
    if size.memory_bytes > MAX_GB << 30 {
        add_fault("memory_bytes", format!("must be at most {MAX_GB} GB"));
    }
    for (field, milli) in [("cpu_milli", size.cpu_milli), ("gpu_milli", size.gpu_milli)] {
        if milli > MAX_MILLI {
            add_fault(field, format!("must be at most {MAX_MILLI}"));
        }
    }
}

fn check_gigabytes(path: &[&str], amount: Option<u64>, faults: &mut Faults) {
    if amount.is_some_and(|amount| amount > MAX_GB) {
        faults.add(path, format!("must be at most {MAX_GB} GB"));
    }
}

fn check_tunables(tunables: &Tunables, faults: &mut Faults) {
    let amounts = [
        ("global_allotment_gb", tunables.global_allotment_gb),
        ("global_allotment_quanta", tunables.global_allotment_quanta),
        ("reserve_overage_gb", tunables.reserve_overage_gb),
        ("node_reserved_gb", Some(tunables.node_reserved_gb)),
        (
            "node_memory_override_gb",
            Some(tunables.node_memory_override_gb),
        ),
    ];
    for (field, amount) in amounts {
        check_gigabytes(&["tunables", field], amount, faults);
    }
    if tunables.global_allotment_gb.is_some() && tunables.global_allotment_quanta.is_some() {
        let detail = "has the same meaning as global_allotment_gb: keep one of the two";
        faults.add(&["tunables", "global_allotment_quanta"], detail);
    }
    if tunables.prediction_fudge_ms > YEAR_MS {
        let detail = "must be at most a year: 31622400000";
        faults.add(&["tunables", "prediction_fudge_ms"], detail);
    }
    let counts = [
        ("initialization_cap", tunables.initialization_cap),
        ("fragmentation_threshold", tunables.fragmentation_threshold),
    ];
    for (field, count) in counts {
        if count > MAX_PROCESSES {
            let detail = format!("must be at most {MAX_PROCESSES}");
            faults.add(&["tunables", field], detail);
        }
    }
}

/// Checks the growth of a class.
pub(super) fn check_growth(
    name: &str,
    cap: Option<u64>,
    fudge_ms: Option<u64>,
    faults: &mut Faults,
) {
    if cap.is_some_and(|cap| cap > MAX_PROCESSES) {
        let detail = format!("must be at most {MAX_PROCESSES}");
        faults.add(&["classes", name, "initialization_cap"], detail);
    }
    if fudge_ms.is_some_and(|fudge_ms| fudge_ms > YEAR_MS) {
        let detail = "must be at most a year: 31622400000";
        faults.add(&["classes", name, "prediction_fudge_ms"], detail);
    }
}

/// Checks a wait target. All work would miss a target of 0.
pub(super) fn check_wait_target(name: &str, seconds: Option<u64>, faults: &mut Faults) {
    if seconds.is_some_and(|target| target == 0 || target > YEAR_MS / 1_000) {
        let detail = "must be from 1 to a year: 31622400";
        faults.add(&["classes", name, "wait_target_s"], detail);
    }
}

/// Checks the name of a user, and that each allotment is within its limits and names an existing
/// class.
fn check_user(policy: &Policy, name: &str, user: &UserPolicy, faults: &mut Faults) {
    if let Err(error) = UserName::new(name) {
        faults.add(&["users", name], error.to_string());
    }
    check_gigabytes(
        &["users", name, "max_allotment_gb"],
        user.max_allotment_gb,
        faults,
    );
    let quanta_path = &["users", name, "max_allotment_quanta"];
    check_gigabytes(quanta_path, user.max_allotment_quanta, faults);
    if user.max_allotment_gb.is_some() && user.max_allotment_quanta.is_some() {
        faults.add(
            quanta_path,
            "has the same meaning as max_allotment_gb: keep one of the two",
        );
    }
    for (class, amount) in &user.max_allotment_gb_by_class {
        let path = ["users", name, "max_allotment_gb_by_class", class];
        check_gigabytes(&path, Some(*amount), faults);
        let known_class = policy.classes.get(class);
        if known_class.is_none_or(|known_class| known_class.is_abstract) {
            let serving = policy
                .classes
                .iter()
                .filter(|(_, known_class)| !known_class.is_abstract);
            let existing = list_existing(serving.map(|(name, _)| name.as_str()));
            faults.add(&path, format!("there is no class {class:?}: {existing}"));
        }
    }
}
