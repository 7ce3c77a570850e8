//! Runs one service as a separate process, so that its cost is separate from that of its clients.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use hayward_service::Client;
use hayward_service::health::ProbeResponse;
use tokio::process::{Child, Command};

/// Ticks per second in `/proc/PID/stat` on Linux.
const TICKS_PER_SECOND: u64 = 100;
/// Maximum time for the start or the stop of the service.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Settings of the rate limits. The value 0 means no limit.
const RATE_LIMITS: [&str; 5] = [
    "HAYWARD_STRANGER_REQUESTS_PER_SECOND",
    "HAYWARD_REQUESTS_PER_SECOND",
    "HAYWARD_REQUESTS_AT_ONCE",
    "HAYWARD_STREAMS_AT_ONCE",
    "HAYWARD_PROCESSOR_PERCENT_EACH",
];

pub struct ServiceProcess {
    pub address: SocketAddr,
    child: Child,
}

impl ServiceProcess {
    /// Starts `hayward run SERVICE` and waits until the service is ready.
    pub async fn start(
        service: &str,
        port: u16,
        keys: &Path,
        settings: &[(&str, String)],
    ) -> anyhow::Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let program = std::env::current_exe().context("cannot find this program")?;
        let is_own_variable = |name: &str| name.starts_with("HAYWARD_") || name == "DATABASE_URL";
        let inherited =
            std::env::vars_os().filter(|(name, _)| !name.to_str().is_some_and(is_own_variable));
        let child = Command::new(program)
            .args(["run", service])
            .env_clear()
            .envs(inherited)
            .env("HAYWARD_LISTEN", address.to_string())
            .env("HAYWARD_KEYS", keys)
            .env("HAYWARD_LOG_FILTER", "error")
            // Rate limits are off unless `settings` sets them.
            .envs(RATE_LIMITS.map(|name| (name, "0")))
            .envs(settings.iter().map(|(name, value)| (*name, value.as_str())))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {service}"))?;
        let mut process = Self { address, child };
        process.wait_until_ready(service).await?;
        Ok(process)
    }

    async fn wait_until_ready(&mut self, service: &str) -> anyhow::Result<()> {
        let url = format!("http://{}", self.address);
        let client = Client::new(&[url], hayward_service::TokenSource::none())?;
        let deadline = tokio::time::Instant::now() + TIMEOUT;
        while client.get::<ProbeResponse>("/readyz").await.is_err() {
            if let Some(status) = self.child.try_wait()? {
                bail!("{service} ended: {status}");
            }
            if tokio::time::Instant::now() > deadline {
                bail!("{service} was not ready in time");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Reads a file of the process in `/proc`.
    fn read_proc_file(&self, file: &str) -> anyhow::Result<String> {
        let pid = self.child.id().context("the service has ended")?;
        Ok(std::fs::read_to_string(format!("/proc/{pid}/{file}"))?)
    }

    /// Returns the CPU time in milliseconds since the start.
    pub fn cpu_ms(&self) -> anyhow::Result<u64> {
        let stat = self.read_proc_file("stat")?;
        let fields = stat.rsplit(')').next().unwrap_or_default();
        // The first field after the name is the third of the file. User time and system time are
        // the fields 14 and 15.
        let ticks: u64 = fields
            .split_ascii_whitespace()
            .skip(11)
            .take(2)
            .filter_map(|field| field.parse::<u64>().ok())
            .sum();
        Ok(ticks * (1000 / TICKS_PER_SECOND))
    }

    /// Returns the resident memory in MiB.
    pub fn resident_mib(&self) -> anyhow::Result<u64> {
        let status = self.read_proc_file("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_ascii_whitespace().next());
        let kib: u64 = kib.context("no VmRSS")?.parse()?;
        Ok(kib / 1024)
    }

    /// Stops the process with a signal, like an operator.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        if let Some(pid) = self.child.id().and_then(|pid| i32::try_from(pid).ok()) {
            let pid = nix::unistd::Pid::from_raw(pid);
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM)?;
        }
        if tokio::time::timeout(TIMEOUT, self.child.wait())
            .await
            .is_err()
        {
            self.child.kill().await?;
        }
        Ok(())
    }
}
