//! Modes that are less safe than the default. A setting must allow them, and released images refuse
//! them. The status, the log and the dashboards show them (S3).

mod remote_peers;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;

use crate::config::ServerSettings;
use crate::metrics::catalogue::{INSECURE_MODES, SERVICE};
use crate::metrics::gauges;
use crate::runtime::RELEASE_MARKER;
use crate::runtime::clock::offset;

/// Interval of the log message while a mode is on.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// The modes that `/v1/status` shows.
#[derive(Debug, Clone)]
pub struct InsecureModes(pub Arc<[String]>);

/// Refuses insecure modes in a released image. Only such an image contains the file `marker`.
pub(crate) fn refuse_in_release(
    allow_insecure: bool,
    marker: impl AsRef<Path>,
) -> anyhow::Result<()> {
    if allow_insecure && marker.as_ref().exists() {
        bail!(
            "`allow_insecure` is refused in released images; set `tls_certificate` and `tls_key`, \
             which `hayward prepare` makes, or listen on 127.0.0.1; and reach the database and the \
             collector over TLS"
        );
    }
    Ok(())
}

/// Refuses a clock that a test has stepped in a released image, because tokens expire by it.
pub(crate) fn check_clock() -> anyhow::Result<()> {
    refuse_test_clock_in_release(offset::variable().is_some(), RELEASE_MARKER)
}

fn refuse_test_clock_in_release(
    has_test_clock: bool,
    marker: impl AsRef<Path>,
) -> anyhow::Result<()> {
    if has_test_clock && marker.as_ref().exists() {
        bail!(
            "`{}` is refused in released images: it is for tests alone, so take it away",
            offset::VARIABLE
        );
    }
    Ok(())
}

/// Refuses an address that other nodes can reach, unless `allowed` by TLS or by a setting.
pub(crate) fn check_address(address: SocketAddr, allowed: bool) -> anyhow::Result<()> {
    if address.ip().is_loopback() || allowed {
        return Ok(());
    }
    bail!(
        "{address} can be reached from other machines and there is no TLS; set `tls_certificate` \
         and `tls_key`, or listen on 127.0.0.1, or set `allow_insecure` where something else \
         protects the network"
    )
}

/// Checks connections to other nodes that an attacker could read: to the database and to the
/// collector (S25).
pub(crate) fn check_peers(settings: &ServerSettings) -> anyhow::Result<()> {
    refuse_in_release(settings.allow_insecure, RELEASE_MARKER)?;
    check_clock()?;
    for peer in remote_peers::insecure_peers(settings) {
        if !settings.allow_insecure {
            bail!(
                "{}, or set `allow_insecure` where something else protects the network",
                peer.advice
            );
        }
    }
    Ok(())
}

/// Returns the reason not to use this database address, for a program that connects only once.
pub fn unencrypted_database_warning(url: &str) -> Option<String> {
    remote_peers::insecure_database(url).map(|peer| peer.advice)
}

/// Logs the modes of these settings repeatedly, for a process without a status.
pub async fn log_insecure_modes(name: &str, settings: &ServerSettings) {
    log_forever(name, &peer_modes(settings)).await;
}

/// Returns the modes of connections to other nodes. The status shows them together with the modes
/// of listeners.
pub(crate) fn peer_modes(settings: &ServerSettings) -> Vec<String> {
    let test_clock = offset::variable().map(|_| offset::MODE.to_owned());
    let peers = remote_peers::insecure_peers(settings)
        .into_iter()
        .map(|peer| peer.mode);
    peers.chain(test_clock).collect()
}

/// Returns the modes of a listener, for the status and the log.
pub(crate) fn listener_modes(address: SocketAddr, tls: bool) -> Vec<String> {
    if address.ip().is_loopback() || tls {
        return Vec::new();
    }
    vec![format!("plain_http_on_{}", address.ip())]
}

pub(crate) async fn log_forever(name: &str, modes: &[String]) {
    if modes.is_empty() {
        return std::future::pending().await;
    }
    let mut tick = tokio::time::interval(LOG_INTERVAL);
    loop {
        tick.tick().await;
        tracing::warn!(service = name, ?modes, "insecure mode is on");
    }
}

/// Sets the gauge that dashboards show.
pub(crate) fn set_gauge(name: &'static str, modes: &[String]) {
    let mode_count = u64::try_from(modes.len()).unwrap_or(u64::MAX);
    let reading = INSECURE_MODES.count_reading(mode_count, vec![SERVICE.with(name)]);
    gauges::set(name, "insecure_modes", vec![reading]);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Other addresses need TLS or `allow_insecure` (S3).
    #[test]
    fn only_loopback_is_served_without_a_flag() {
        let (loopback, reachable) = ("127.0.0.1:1".parse().unwrap(), "0.0.0.0:1".parse().unwrap());
        check_address(loopback, false).unwrap();
        assert!(
            check_address(reachable, false)
                .unwrap_err()
                .to_string()
                .contains("allow_insecure")
        );
        check_address(reachable, true).unwrap();
        assert!(listener_modes(loopback, false).is_empty());
        assert_eq!(listener_modes(reachable, false), ["plain_http_on_0.0.0.0"]);
        assert!(listener_modes(reachable, true).is_empty());
    }

    /// The marker file of the image decides (S3).
    #[test]
    fn a_released_image_refuses_insecure_modes() {
        let dir = tempfile::tempdir().unwrap();
        let marker = dir.path().join("release");
        refuse_in_release(true, &marker).unwrap();
        std::fs::write(&marker, "").unwrap();
        refuse_in_release(false, &marker).unwrap();
        let message = refuse_in_release(true, &marker).unwrap_err().to_string();
        assert!(message.contains("`allow_insecure` is refused"), "{message}");
        refuse_test_clock_in_release(false, &marker).unwrap();
        let message = refuse_test_clock_in_release(true, &marker)
            .unwrap_err()
            .to_string();
        assert!(
            message.contains("is refused in released images"),
            "{message}"
        );
    }
}
