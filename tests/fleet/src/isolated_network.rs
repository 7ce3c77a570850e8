//! Network namespaces for agents, each joined to the host by a pair of virtual interfaces whose
//! frames can be lost in either direction.
//!
//! Needs `ip`, a kernel with namespaces, and the right to create them. Frames are lost by sending
//! them to a hardware address that does not exist, so no side gets an error, as on a broken
//! network.

use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};

/// Hardware address that no interface has. Frames to this address are lost.
const UNUSED_MAC: &str = "02:48:ff:ff:ff:ff";
const AGENT_INTERFACE: &str = "up0";
/// Number of /30 networks in 10.213.0.0/16.
const NETWORK_COUNT: u16 = 16_384;
/// Maximum number of networks that are tried until one is free.
const MAX_ATTEMPTS: usize = 64;

/// The direction of the loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketLoss {
    None,
    /// Frames to the agent are lost. Frames from it arrive.
    ToAgent,
    /// Frames from the agent are lost. Frames to it arrive.
    FromAgent,
    BothWays,
}

/// A network for one agent. It is removed when it is dropped.
pub struct IsolatedNetwork {
    /// Name of the namespace and of the interface on the host.
    name: String,
    number: u16,
}

impl IsolatedNetwork {
    /// # Errors
    /// Returns the reason why this machine or user cannot create a network. The test prints it and
    /// skips.
    pub fn new() -> Result<Self, String> {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        // Each process begins at another number, so that parallel tests rarely try the same one.
        let first_number = u16::try_from(std::process::id() % 1_024).expect("small") * 16;
        let mut last_error = String::new();
        // All processes of this machine share the numbers. A number in use is skipped.
        for _ in 0..MAX_ATTEMPTS {
            let number = (first_number + NEXT.fetch_add(1, Ordering::Relaxed)) % NETWORK_COUNT;
            let name = format!("hw{number}");
            if let Err(error) = ip(&format!("netns add {name}")) {
                last_error = error;
                continue;
            }
            let network = Self { name, number };
            match network.connect_to_host() {
                Ok(()) => return Ok(network),
                Err(error) => last_error = error,
            }
        }
        Err(format!("no network namespace can be made: {last_error}"))
    }

    fn connect_to_host(&self) -> Result<(), String> {
        let Self { name, .. } = self;
        let (host_mac, agent_mac) = (self.mac_address(1), self.mac_address(2));
        ip(&format!(
            "link add {name} address {host_mac} type veth \
             peer name {AGENT_INTERFACE} netns {name} address {agent_mac}"
        ))?;
        ip(&format!(
            "address add {}/30 dev {name}",
            self.host_address()
        ))?;
        ip(&format!("link set {name} up"))?;
        ip(&format!(
            "-n {name} address add {}/30 dev {AGENT_INTERFACE}",
            self.agent_address()
        ))?;
        ip(&format!("-n {name} link set {AGENT_INTERFACE} up"))?;
        ip(&format!("-n {name} link set lo up"))?;
        self.try_set_packet_loss(PacketLoss::None)
    }

    pub fn set_packet_loss(&self, loss: PacketLoss) {
        self.try_set_packet_loss(loss)
            .expect("the network can be changed");
    }

    fn try_set_packet_loss(&self, loss: PacketLoss) -> Result<(), String> {
        let Self { name, .. } = self;
        let (host_mac, agent_mac) = (self.mac_address(1), self.mac_address(2));
        let loses_to_agent = matches!(loss, PacketLoss::ToAgent | PacketLoss::BothWays);
        let loses_from_agent = matches!(loss, PacketLoss::FromAgent | PacketLoss::BothWays);
        // Each side has a fixed MAC address for the other. A wrong address loses all frames.
        let mac_used_for_agent = if loses_to_agent {
            UNUSED_MAC
        } else {
            &agent_mac
        };
        let mac_used_for_host = if loses_from_agent {
            UNUSED_MAC
        } else {
            &host_mac
        };
        let agent = self.agent_address();
        ip(&format!(
            "neigh replace {agent} lladdr {mac_used_for_agent} dev {name} nud permanent"
        ))?;
        let host = self.host_address();
        ip(&format!(
            "-n {name} neigh replace {host} lladdr {mac_used_for_host} dev {AGENT_INTERFACE} \
             nud permanent"
        ))
    }

    /// Returns the address of the host on this network.
    pub fn host_address(&self) -> String {
        self.address(1)
    }

    fn agent_address(&self) -> String {
        self.address(2)
    }

    fn address(&self, last: u16) -> String {
        // A /30 network has four addresses.
        let offset = self.number * 4 + last;
        format!("10.213.{}.{}", offset / 256, offset % 256)
    }

    fn mac_address(&self, last: u16) -> String {
        let [high, low] = self.number.to_be_bytes();
        format!("02:48:{high:02x}:{low:02x}:00:{last:02x}")
    }

    /// Returns a command that runs the program in the namespace. The program gets the process id of
    /// the command.
    pub fn wrap_command(&self, program: &std::path::Path) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net=/run/netns/{}", self.name))
            .arg(program);
        command
    }
}

impl Drop for IsolatedNetwork {
    fn drop(&mut self) {
        // Processes in the namespace may live a little longer, but the interfaces are removed now.
        drop(ip(&format!("link delete {}", self.name)));
        drop(ip(&format!("netns delete {}", self.name)));
    }
}

fn ip(arguments: &str) -> Result<(), String> {
    let output = Command::new("ip")
        .args(arguments.split(' '))
        .output()
        .map_err(|error| format!("ip: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let output_text = String::from_utf8_lossy(&output.stderr);
    Err(format!("ip {arguments}: {}", output_text.trim()))
}
