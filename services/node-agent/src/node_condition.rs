//! The content of heartbeats. The node is measured for each heartbeat. From the measurements,
//! [`node_offer`] decides how much memory to offer, and whether the node is quiesced, which means
//! that it accepts no new work.

use std::path::PathBuf;
use std::time::Duration;

use hayward_node_agent_domain::node_offer::{self, QuiesceLimits, QuiesceState, Readings};
use hayward_node_status_api::{Heartbeat, Inventory, Metrics};
use tokio::time::Instant;

use crate::agent::AgentStatus;
use crate::config::Settings;
use crate::node_resources;

/// Time between measurements of memory. Inspecting all processes takes milliseconds, and memory
/// changes slowly.
const MEASURE_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum length of the quiesce note, in bytes.
const MAX_NOTE: usize = 200;

/// Reads the condition of a real node. A simulated node has no reader.
pub struct NodeReader {
    state_dir: PathBuf,
    /// Whether memory is measured. Otherwise a setting determines the memory to offer.
    measures_memory: bool,
    system_uid_below: u32,
    quiesce_file: PathBuf,
    limits: QuiesceLimits,
    quiesce: QuiesceState,
    /// Time of the last measurement of memory.
    last_measurement: Option<Instant>,
}

impl NodeReader {
    pub fn new(settings: &Settings, state_dir: PathBuf) -> Self {
        Self {
            quiesce_file: settings
                .quiesce_file
                .clone()
                .unwrap_or_else(|| state_dir.join("quiesce")),
            measures_memory: settings.memory_bytes.is_none(),
            system_uid_below: settings.system_uid_below,
            limits: QuiesceLimits {
                disk_bytes: settings.quiesce_disk_bytes,
                memory_pressure_percent: settings.quiesce_memory_pressure_percent,
            },
            state_dir,
            quiesce: QuiesceState::default(),
            last_measurement: None,
        }
    }

    /// Measures the memory if a measurement is due, and sets the offered memory in the inventory.
    async fn measure_memory(&mut self, inventory: &mut Inventory, status: &AgentStatus) {
        let is_due = self
            .last_measurement
            .is_none_or(|at| at.elapsed() >= MEASURE_INTERVAL);
        if !self.measures_memory || !is_due {
            return;
        }
        let container_pids: Vec<u32> = status
            .containers
            .iter()
            .filter_map(|report| report.pid)
            .collect();
        let uid_below = self.system_uid_below;
        let measure = move || node_resources::system_memory(uid_below, &container_pids);
        // A failed measurement changes nothing.
        let Ok(system_bytes) = tokio::task::spawn_blocking(measure).await else {
            return;
        };
        let total = node_resources::total_memory();
        let offered_before = self
            .last_measurement
            .map(|_| inventory.capacity.memory_bytes);
        let offered = node_offer::offered_memory(
            offered_before,
            node_offer::allocatable_memory(total, system_bytes),
            total,
        );
        inventory.capacity.memory_bytes = offered;
        self.last_measurement = Some(Instant::now());
    }

    fn quiesce_reason(
        &mut self,
        inventory: &Inventory,
        metrics: &Metrics,
        status: &AgentStatus,
    ) -> Option<String> {
        let note = std::fs::read_to_string(&self.quiesce_file).ok();
        let readings = Readings {
            disk_free_bytes: (metrics.disk_total_bytes > 0).then_some(metrics.disk_free_bytes),
            memory_pressure_centi: metrics.pressure.map(|pressure| pressure.memory_centi),
            note: note.as_deref().map(first_line),
            offered: inventory.capacity.clone(),
            granted: status.granted.clone(),
            fault: status.fault.clone(),
        };
        self.quiesce.quiesce_reason(&readings, self.limits)
    }
}

/// Returns the first line without control characters, because it is shown in terminals.
fn first_line(note: &str) -> String {
    let line = note.lines().next().unwrap_or_default().trim();
    let printable = line.chars().filter(|c| !c.is_control());
    let mut text = String::new();
    for c in printable {
        if text.len() + c.len_utf8() > MAX_NOTE {
            break;
        }
        text.push(c);
    }
    text
}

/// Function that returns the runtimes that are available now.
pub type RuntimeLister = Box<dyn Fn() -> Vec<String> + Send>;

/// Everything that the heartbeats of an agent contain.
pub struct NodeCondition {
    pub boot_id: String,
    pub agent_instance: String,
    pub inventory: Inventory,
    /// Lists the available runtimes for each heartbeat, because a container engine may come and go.
    pub available_runtimes: RuntimeLister,
    pub reader: Option<NodeReader>,
}

impl NodeCondition {
    pub async fn heartbeat(&mut self, status: &AgentStatus) -> Heartbeat {
        let (mut metrics, mut quiesce_reason) = (Metrics::default(), None);
        if let Some(reader) = &mut self.reader {
            reader.measure_memory(&mut self.inventory, status).await;
            metrics = node_resources::metrics(&reader.state_dir);
            quiesce_reason = reader.quiesce_reason(&self.inventory, &metrics, status);
        }
        metrics.containers = status.live_count() as u64;
        metrics.complete = status.complete;
        Heartbeat {
            boot_id: self.boot_id.clone(),
            agent_instance: self.agent_instance.clone(),
            inventory: Inventory {
                runtimes: (self.available_runtimes)(),
                ..self.inventory.clone()
            },
            metrics,
            quiesced: quiesce_reason.is_some(),
            quiesce_reason,
        }
    }
}

#[cfg(test)]
mod tests {
    use hayward_vocabulary::Size;

    use super::*;

    fn inventory(memory_bytes: u64) -> Inventory {
        Inventory {
            capacity: Size::memory(memory_bytes),
            pool: None,
            labels: std::collections::BTreeMap::new(),
            runtimes: Vec::new(),
            version: String::new(),
        }
    }

    fn condition(dir: &std::path::Path, settings: &Settings) -> NodeCondition {
        NodeCondition {
            boot_id: "b".into(),
            agent_instance: "a".into(),
            inventory: inventory(settings.memory_bytes.unwrap_or(1)),
            available_runtimes: Box::new(Vec::new),
            reader: Some(NodeReader::new(settings, dir.to_owned())),
        }
    }

    #[tokio::test]
    async fn a_quiesce_file_quiesces_the_node_until_it_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let settings = Settings {
            quiesce_disk_bytes: 0,
            quiesce_memory_pressure_percent: 0,
            ..Settings::default()
        };
        let mut condition = condition(dir.path(), &settings);
        let status = AgentStatus::default();
        let heartbeat = condition.heartbeat(&status).await;
        assert_eq!(
            (heartbeat.quiesced, heartbeat.quiesce_reason),
            (false, None)
        );
        assert!(
            !heartbeat.metrics.complete,
            "the node was not inspected yet"
        );
        std::fs::write(dir.path().join("quiesce"), "new\u{1b}fan\nand more").unwrap();
        let heartbeat = condition.heartbeat(&status).await;
        let reason = heartbeat.quiesce_reason.unwrap();
        assert_eq!(reason, "requested by its operator: newfan");
        assert!(heartbeat.quiesced);
        std::fs::remove_file(dir.path().join("quiesce")).unwrap();
        assert!(!condition.heartbeat(&status).await.quiesced);
    }

    #[tokio::test]
    async fn memory_is_read_from_the_system_unless_it_is_set() {
        let dir = tempfile::tempdir().unwrap();
        let heartbeat = condition(dir.path(), &Settings::default())
            .heartbeat(&AgentStatus::default())
            .await;
        let offered = heartbeat.inventory.capacity.memory_bytes;
        let total = heartbeat.metrics.memory_total_bytes;
        assert!(0 < offered && offered < total, "{offered} of {total}");
        let settings = Settings {
            memory_bytes: Some(5 << 30),
            ..Settings::default()
        };
        let heartbeat = condition(dir.path(), &settings)
            .heartbeat(&AgentStatus::default())
            .await;
        assert_eq!(heartbeat.inventory.capacity.memory_bytes, 5 << 30);
        assert!(heartbeat.metrics.disk_total_bytes >= heartbeat.metrics.disk_free_bytes);
    }
}
