//! DNS resolver that rotates the addresses of a name.
//!
//! Replicas may share one name. The system resolver tends to return the same address first. Here
//! each connection starts with the next address, so a client leaves a standby for the leader.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

#[derive(Default)]
pub(super) struct RoundRobin(Arc<AtomicUsize>);

impl Resolve for RoundRobin {
    fn resolve(&self, name: Name) -> Resolving {
        let rotation = Arc::clone(&self.0);
        Box::pin(async move {
            // The HTTP client replaces port 0.
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let found: Vec<_> = found.collect();
            if found.is_empty() {
                return Err(
                    io::Error::new(io::ErrorKind::NotFound, "a name without address").into(),
                );
            }
            let rotation = rotation.fetch_add(1, Ordering::Relaxed);
            Ok(Box::new(rotate(found, rotation).into_iter()) as Addrs)
        })
    }
}

/// Returns the addresses of the preferred family, rotated by `rotation`. The other addresses
/// follow as a fallback.
fn rotate(found: Vec<SocketAddr>, rotation: usize) -> Vec<SocketAddr> {
    let prefers_ipv4 = found.first().is_some_and(SocketAddr::is_ipv4);
    let (mut first, others): (Vec<_>, Vec<_>) = found
        .into_iter()
        .partition(|address| address.is_ipv4() == prefers_ipv4);
    // The system resolver changes the order of its addresses, which could undo the rotation.
    // Therefore the addresses are sorted first.
    first.sort_unstable();
    first.dedup();
    let offset = rotation % first.len().max(1);
    first.rotate_left(offset);
    first.extend(others);
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(all: &[&str]) -> Vec<SocketAddr> {
        all.iter().map(|address| address.parse().unwrap()).collect()
    }

    #[test]
    fn each_connection_starts_with_another_address_of_the_preferred_family() {
        let (found, reordered) = (
            ["10.0.0.1:0", "10.0.0.2:0", "[::1]:0"],
            ["10.0.0.2:0", "10.0.0.1:0"],
        );
        let first_address = |all: &[&str], rotation| rotate(addresses(all), rotation)[0];
        // The order of the resolver does not matter.
        assert_eq!(first_address(&found, 0), first_address(&reordered, 0));
        assert_ne!(first_address(&found, 0), first_address(&reordered, 1));
        assert_eq!(first_address(&found, 0), first_address(&found, 2));
        let all = rotate(addresses(&found), 1);
        assert!(all[2].is_ipv6() && all.len() == 3);
        assert!(rotate(addresses(&["[::1]:0", "127.0.0.1:0"]), 7)[0].is_ipv6());
        assert!(rotate(Vec::new(), 3).is_empty());
    }

    #[tokio::test]
    async fn a_name_is_resolved_and_an_unknown_one_is_an_error() {
        let names = RoundRobin::default();
        let found = names.resolve("localhost".parse().unwrap()).await;
        assert!(found.unwrap().all(|address| address.ip().is_loopback()));
        assert!(
            names
                .resolve("no-such-name.invalid".parse().unwrap())
                .await
                .is_err()
        );
    }
}
