//! Network namespaces for agents, each joined to the host by a pair of virtual interfaces whose
//! frames can be lost in either direction.
//!
//! Needs `ip`, a kernel with namespaces, and the right to create them. Frames are lost by sending
//! them to a hardware address that does not exist, so no side gets an error, as on a broken
//! network.

use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};

/// Hardware address that no interface has. Frames to this address are lost.
const UNUSED_ADDRESS: &str = "02:48:ff:ff:ff:ff";
const INSIDE: &str = "up0";

/// The direction of the loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    Nothing,
    /// Frames to the island are lost. Frames from it arrive.
    ToIt,
    /// Frames from the island are lost. Frames to it arrive.
    FromIt,
    Everything,
}

pub struct Island {
    /// Name of the namespace and of the interface on the host.
    name: String,
    number: u16,
}

impl Island {
    /// # Errors Returns the reason why this machine or user cannot create an island. The test
    /// prints it and skips.
    pub fn new() -> Result<Self, String> {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let own = u16::try_from(std::process::id() % 1_024).expect("small") * 16;
        let mut last = String::new();
        // All processes of this machine share the numbers. A number in use is skipped.
        for _ in 0..64 {
            let number = (own + NEXT.fetch_add(1, Ordering::Relaxed)) % 16_384;
            let name = format!("hw{number}");
            if let Err(error) = ip(&format!("netns add {name}")) {
                last = error;
                continue;
            }
            let island = Self { name, number };
            match island.join() {
                Ok(()) => return Ok(island),
                Err(error) => last = error,
            }
        }
        Err(format!("no network namespace can be made: {last}"))
    }

    fn join(&self) -> Result<(), String> {
        let Self { name, .. } = self;
        let (here, there) = (self.card(1), self.card(2));
        ip(&format!(
            "link add {name} address {here} type veth \
             peer name {INSIDE} netns {name} address {there}"
        ))?;
        ip(&format!("address add {}/30 dev {name}", self.host()))?;
        ip(&format!("link set {name} up"))?;
        ip(&format!(
            "-n {name} address add {}/30 dev {INSIDE}",
            self.own()
        ))?;
        ip(&format!("-n {name} link set {INSIDE} up"))?;
        ip(&format!("-n {name} link set lo up"))?;
        self.try_lose(Loss::Nothing)
    }

    pub fn lose(&self, loss: Loss) {
        self.try_lose(loss).expect("the network can be changed");
    }

    fn try_lose(&self, loss: Loss) -> Result<(), String> {
        let Self { name, .. } = self;
        let (here, there) = (self.card(1), self.card(2));
        let to = matches!(loss, Loss::ToIt | Loss::Everything);
        let from = matches!(loss, Loss::FromIt | Loss::Everything);
        let to = if to { UNUSED_ADDRESS } else { &there };
        let from = if from { UNUSED_ADDRESS } else { &here };
        let own = self.own();
        ip(&format!(
            "neigh replace {own} lladdr {to} dev {name} nud permanent"
        ))?;
        let host = self.host();
        ip(&format!(
            "-n {name} neigh replace {host} lladdr {from} dev {INSIDE} nud permanent"
        ))
    }

    /// Returns the address of the host on the island.
    pub fn host(&self) -> String {
        self.address(1)
    }

    fn own(&self) -> String {
        self.address(2)
    }

    fn address(&self, last: u16) -> String {
        let place = self.number * 4 + last;
        format!("10.213.{}.{}", place / 256, place % 256)
    }

    fn card(&self, last: u16) -> String {
        let [high, low] = self.number.to_be_bytes();
        format!("02:48:{high:02x}:{low:02x}:00:{last:02x}")
    }

    /// Wraps a program so that it runs on the island. It keeps its process id.
    pub fn around(&self, program: &std::path::Path) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net=/run/netns/{}", self.name))
            .arg(program);
        command
    }
}

impl Drop for Island {
    fn drop(&mut self) {
        // Processes on the island may live a little longer, but the interfaces are removed now.
        drop(ip(&format!("link delete {}", self.name)));
        drop(ip(&format!("netns delete {}", self.name)));
    }
}

fn ip(words: &str) -> Result<(), String> {
    let output = Command::new("ip")
        .args(words.split(' '))
        .output()
        .map_err(|error| format!("ip: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let output_text = String::from_utf8_lossy(&output.stderr);
    Err(format!("ip {words}: {}", output_text.trim()))
}
