//! What this agent says of its machine with each heartbeat: what it is, how it feels, and whether
//! it wants no new work. What is measured here is judged in [`domain`].

use std::path::PathBuf;
use std::time::Duration;

use hayward_node_agent_domain::condition::{self as domain, Bounds, Feeling, Quiet};
use hayward_node_status_api::{Heartbeat, Inventory, Metrics};
use tokio::time::Instant;

use crate::agent::Board;
use crate::config::Settings;
use crate::machine;

/// Looking through all processes takes milliseconds, and memory moves slowly.
const MEASURE_EVERY: Duration = Duration::from_secs(10);
/// Bytes of a note that are told.
const NOTE: usize = 200;

/// A real machine; a pretended one has no condition of its own.
pub struct Machine {
    state_dir: PathBuf,
    /// Its memory is measured; otherwise it was said.
    measured: bool,
    system_uid_below: u32,
    note: PathBuf,
    bounds: Bounds,
    quiet: Quiet,
    looked: Option<Instant>,
}

impl Machine {
    pub fn new(settings: &Settings, state_dir: PathBuf) -> Self {
        Self {
            note: settings
                .quiesce_file
                .clone()
                .unwrap_or_else(|| state_dir.join("quiesce")),
            measured: settings.memory_bytes.is_none(),
            system_uid_below: settings.system_uid_below,
            bounds: Bounds {
                disk_bytes: settings.quiesce_disk_bytes,
                memory_pressure_percent: settings.quiesce_memory_pressure_percent,
            },
            state_dir,
            quiet: Quiet::default(),
            looked: None,
        }
    }

    async fn measure(&mut self, inventory: &mut Inventory, board: &Board) {
        let due = self.looked.is_none_or(|at| at.elapsed() >= MEASURE_EVERY);
        if !self.measured || !due {
            return;
        }
        let ours: Vec<u32> = board.containers.iter().filter_map(|it| it.pid).collect();
        let below = self.system_uid_below;
        let look = move || machine::held_by_system(below, &ours);
        // A look that failed is no news.
        let Ok(held) = tokio::task::spawn_blocking(look).await else {
            return;
        };
        let total = machine::total_memory();
        let told = self.looked.map(|_| inventory.capacity.memory_bytes);
        let offered = domain::told(told, domain::allocatable(total, held), total);
        inventory.capacity.memory_bytes = offered;
        self.looked = Some(Instant::now());
    }

    fn judge(&mut self, inventory: &Inventory, metrics: &Metrics, board: &Board) -> Option<String> {
        let note = std::fs::read_to_string(&self.note).ok();
        let feeling = Feeling {
            disk_free_bytes: (metrics.disk_total_bytes > 0).then_some(metrics.disk_free_bytes),
            memory_pressure_centi: metrics.pressure.map(|pressure| pressure.memory_centi),
            note: note.as_deref().map(first_line),
            offered: inventory.capacity.clone(),
            granted: board.granted.clone(),
            trouble: board.trouble.clone(),
        };
        self.quiet.judged(&feeling, self.bounds)
    }
}

/// A note is for people, and goes through their terminals.
fn first_line(note: &str) -> String {
    let line = note.lines().next().unwrap_or_default().trim();
    let plain = line.chars().filter(|c| !c.is_control());
    let mut text = String::new();
    for c in plain {
        if text.len() + c.len_utf8() > NOTE {
            break;
        }
        text.push(c);
    }
    text
}

/// Names the runtimes that may be used at this moment.
pub type Offers = Box<dyn Fn() -> Vec<String> + Send>;

/// The heartbeat of this moment.
pub struct Condition {
    pub boot_id: String,
    pub agent_instance: String,
    pub inventory: Inventory,
    /// The runtimes it offers, asked for each time: a container engine may come and go.
    pub offers: Offers,
    pub machine: Option<Machine>,
}

impl Condition {
    pub async fn heartbeat(&mut self, board: &Board) -> Heartbeat {
        let (mut metrics, mut why) = (Metrics::default(), None);
        if let Some(machine) = &mut self.machine {
            machine.measure(&mut self.inventory, board).await;
            metrics = machine::metrics(&machine.state_dir);
            why = machine.judge(&self.inventory, &metrics, board);
        }
        metrics.containers = board.alive() as u64;
        metrics.complete = board.complete;
        Heartbeat {
            boot_id: self.boot_id.clone(),
            agent_instance: self.agent_instance.clone(),
            inventory: Inventory {
                runtimes: (self.offers)(),
                ..self.inventory.clone()
            },
            metrics,
            quiesced: why.is_some(),
            quiesce_reason: why,
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

    fn condition(dir: &std::path::Path, settings: &Settings) -> Condition {
        Condition {
            boot_id: "b".into(),
            agent_instance: "a".into(),
            inventory: inventory(settings.memory_bytes.unwrap_or(1)),
            offers: Box::new(Vec::new),
            machine: Some(Machine::new(settings, dir.to_owned())),
        }
    }

    #[tokio::test]
    async fn a_note_asks_for_quiet_until_it_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let settings = Settings {
            quiesce_disk_bytes: 0,
            quiesce_memory_pressure_percent: 0,
            ..Settings::default()
        };
        let mut condition = condition(dir.path(), &settings);
        let board = Board::default();
        let beat = condition.heartbeat(&board).await;
        assert_eq!((beat.quiesced, beat.quiesce_reason), (false, None));
        assert!(!beat.metrics.complete, "nobody has looked yet");
        std::fs::write(dir.path().join("quiesce"), "new\u{1b}fan\nand more").unwrap();
        let beat = condition.heartbeat(&board).await;
        let why = beat.quiesce_reason.unwrap();
        assert_eq!(why, "its operator asks for it: newfan");
        assert!(beat.quiesced);
        std::fs::remove_file(dir.path().join("quiesce")).unwrap();
        assert!(!condition.heartbeat(&board).await.quiesced);
    }

    #[tokio::test]
    async fn memory_is_measured_unless_it_was_said() {
        let dir = tempfile::tempdir().unwrap();
        let measured = condition(dir.path(), &Settings::default())
            .heartbeat(&Board::default())
            .await;
        let offered = measured.inventory.capacity.memory_bytes;
        let total = measured.metrics.memory_total_bytes;
        assert!(0 < offered && offered < total, "{offered} of {total}");
        let said = Settings {
            memory_bytes: Some(5 << 30),
            ..Settings::default()
        };
        let said = condition(dir.path(), &said)
            .heartbeat(&Board::default())
            .await;
        assert_eq!(said.inventory.capacity.memory_bytes, 5 << 30);
        assert!(said.metrics.disk_total_bytes >= said.metrics.disk_free_bytes);
    }
}
