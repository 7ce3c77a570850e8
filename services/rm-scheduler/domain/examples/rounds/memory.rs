//! Makes memory ready before a measurement, and reads the peak memory of this program.

use std::hint::black_box;
use std::process::Command;

/// Argument that makes this program write to memory and do nothing else.
const TOUCH_ARGUMENT: &str = "touch-mib";
/// Upper bound of the memory of a first round and its snapshot, for each piece of work.
const BYTES_PER_WORK: u64 = 3 << 10;

/// Starts another process that writes once to as much memory as a round will use.
///
/// A hypervisor reclaims unused memory after some seconds, and returns it page by page at the first
/// write. Without the other process, those returns would take four fifths of the time of a first
/// round of 100,000 nodes.
pub fn touch_memory_in_child(work_count: u64) {
    let mebibytes = (work_count * BYTES_PER_WORK) >> 20;
    let status = std::env::current_exe().and_then(|this| {
        let mut child = Command::new(this);
        child
            .args([TOUCH_ARGUMENT, &mebibytes.to_string()])
            .status()
    });
    let is_touched = status.is_ok_and(|status| status.success());
    if !is_touched {
        eprintln!("memory could not be made ready: first rounds may show the host's time");
    }
}

/// Writes to memory if this process was started for that alone. Returns true if it was.
pub fn touch_memory_if_requested() -> bool {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() != Some(TOUCH_ARGUMENT) {
        return false;
    }
    let mebibytes = arguments
        .next()
        .and_then(|number| number.parse::<usize>().ok());
    black_box(vec![1_u8; mebibytes.unwrap_or(0) << 20]);
    true
}

/// Returns the peak memory of this program in bytes.
pub fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}
