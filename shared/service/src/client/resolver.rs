//! From a name to addresses, each time in another order.
//!
//! Replicas may share one name, as they do where a stack of containers runs a service twice. The
//! machine's resolver tends to give the same of them first, whoever leads; here the next
//! connection begins with the next address, so a client that was sent away by a replica that
//! stands by comes to the other one.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

#[derive(Default)]
pub(super) struct RoundRobin(Arc<AtomicUsize>);

impl Resolve for RoundRobin {
    fn resolve(&self, name: Name) -> Resolving {
        let turn = Arc::clone(&self.0);
        Box::pin(async move {
            // The port stands in the address and is put in its place by whoever asked.
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let found: Vec<_> = found.collect();
            if found.is_empty() {
                return Err(
                    io::Error::new(io::ErrorKind::NotFound, "a name without address").into(),
                );
            }
            let turn = turn.fetch_add(1, Ordering::Relaxed);
            Ok(Box::new(rotated(found, turn).into_iter()) as Addrs)
        })
    }
}

/// Those of the family that the machine prefers, beginning with another one each turn; then the
/// rest, which are for when no other is reached.
fn rotated(found: Vec<SocketAddr>, turn: usize) -> Vec<SocketAddr> {
    let preferred = found.first().is_some_and(SocketAddr::is_ipv4);
    let (mut first, rest): (Vec<_>, Vec<_>) = found
        .into_iter()
        .partition(|address| address.is_ipv4() == preferred);
    // Sorted, because the order they come in changes by itself and could undo the turning.
    first.sort_unstable();
    first.dedup();
    let by = turn % first.len().max(1);
    first.rotate_left(by);
    first.extend(rest);
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(all: &[&str]) -> Vec<SocketAddr> {
        all.iter().map(|one| one.parse().unwrap()).collect()
    }

    #[test]
    fn each_turn_begins_with_another_of_the_preferred_family() {
        let (one, two) = (
            ["10.0.0.1:0", "10.0.0.2:0", "[::1]:0"],
            ["10.0.0.2:0", "10.0.0.1:0"],
        );
        let begins = |found: &[&str], turn| rotated(addresses(found), turn)[0];
        // Whatever the resolver's own order is.
        assert_eq!(begins(&one, 0), begins(&two, 0));
        assert_ne!(begins(&one, 0), begins(&two, 1));
        assert_eq!(begins(&one, 0), begins(&one, 2));
        let all = rotated(addresses(&one), 1);
        assert!(all[2].is_ipv6() && all.len() == 3);
        assert!(rotated(addresses(&["[::1]:0", "127.0.0.1:0"]), 7)[0].is_ipv6());
        assert!(rotated(Vec::new(), 3).is_empty());
    }

    #[tokio::test]
    async fn a_name_is_found_and_a_wrong_one_is_not() {
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
