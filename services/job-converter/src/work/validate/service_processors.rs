//! Validates the processor settings of a service.

use hayward_job_converter_api::submission::ServiceSubmission;

use super::{Faults, MAX_INSTANCES, MAX_NAME_LENGTH, MAX_WAIT_MS};

const MAX_STANDBYS: u32 = 3;
const MAX_RETRIES: i32 = 1_000;

pub fn check_processor_settings(faults: &mut Faults, service: &ServiceSubmission) {
    let standbys = service.standbys.unwrap_or(0);
    faults.check(standbys <= MAX_STANDBYS, "/standbys", || {
        format!("must be 0 to {MAX_STANDBYS}: each is a process of its own on another node")
    });
    let instances = service.instances.unwrap_or(1);
    let processes = instances.saturating_mul(standbys.saturating_add(1));
    if standbys <= MAX_STANDBYS && instances <= MAX_INSTANCES {
        faults.check(processes <= MAX_INSTANCES, "/standbys", || {
            format!("{processes} processes with those that stand by; at most {MAX_INSTANCES}")
        });
    }
    let mut nodes: Vec<_> = service.machines.iter().collect();
    nodes.sort();
    nodes.dedup();
    let min_nodes = standbys as usize + 1;
    faults.check(
        nodes.is_empty() || standbys > MAX_STANDBYS || nodes.len() >= min_nodes,
        "/machines",
        || {
            format!(
                "name at least {min_nodes}: an instance and its {standbys} standbys never share one"
            )
        },
    );
    if let Some(label) = &service.fault_domain_label {
        let pointer = "/fault_domain_label";
        faults.check(!label.trim().is_empty(), pointer, || "is empty".to_owned());
        faults.check_text(|| pointer.to_owned(), label, MAX_NAME_LENGTH);
        faults.check(standbys > 0, pointer, || {
            "separates an instance from its standbys; request standbys or leave it out".to_owned()
        });
    }
    let Some(retries) = &service.retries else {
        return;
    };
    let is_count_valid = (-1..=MAX_RETRIES).contains(&retries.count);
    faults.check(is_count_valid, "/retries/count", || {
        format!("must be -1 (always, without counting) to {MAX_RETRIES}")
    });
    let is_window_valid = (1..=MAX_WAIT_MS).contains(&retries.window_ms);
    faults.check(is_window_valid, "/retries/window_ms", || {
        format!("must be 1 to {MAX_WAIT_MS}")
    });
    let is_delay_valid = retries.last_delay_ms <= MAX_WAIT_MS;
    faults.check(is_delay_valid, "/retries/last_delay_ms", || {
        format!("must be 0 to {MAX_WAIT_MS}")
    });
}
