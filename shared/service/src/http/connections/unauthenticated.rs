//! Limits unauthenticated connections per address (S27).
//!
//! Thousands of agents may share an address, so authenticated connections are not counted. A
//! silent connection has no request in progress and never had a valid token. Each address may have
//! a number of silent connections. A further one is accepted, and the connection that has been
//! silent longest is closed. Clients that send requests are not affected.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Returns the unit that limits count as one address: an IPv4 address, or an IPv6 network of 64
/// bits.
pub(crate) fn client_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(
            address.to_bits() & !u128::from(u64::MAX),
        )),
        ipv4 @ IpAddr::V4(_) => ipv4,
    }
}

/// Unauthenticated connections of one server.
pub(crate) struct UnauthenticatedConnections {
    limit: usize,
    silent: Mutex<Silent>,
}

#[derive(Default)]
struct Silent {
    /// Silent connections by address and position. The connection that has been silent longest
    /// comes first.
    by_address: HashMap<IpAddr, BTreeMap<u64, Arc<Notify>>>,
    next_position: u64,
}

/// One connection with its address and position.
pub(crate) struct TrackedConnection {
    connections: Arc<UnauthenticatedConnections>,
    address: IpAddr,
    state: Mutex<State>,
    close: Arc<Notify>,
}

#[derive(Clone, Copy)]
enum State {
    Silent(u64),
    InRequest,
    Authenticated,
}

impl UnauthenticatedConnections {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit: limit.max(1),
            silent: Mutex::default(),
        })
    }

    /// Adds a new connection, which is silent at first.
    pub(crate) fn add(self: &Arc<Self>, address: IpAddr) -> Arc<TrackedConnection> {
        let address = client_network(address);
        let close = Arc::new(Notify::new());
        let position = self.add_silent(address, &close);
        Arc::new(TrackedConnection {
            connections: Arc::clone(self),
            address,
            state: Mutex::new(State::Silent(position)),
            close,
        })
    }

    fn add_silent(&self, address: IpAddr, close: &Arc<Notify>) -> u64 {
        let mut silent = self.silent.lock();
        silent.next_position += 1;
        let position = silent.next_position;
        let connections_of_address = silent.by_address.entry(address).or_default();
        connections_of_address.insert(position, Arc::clone(close));
        if connections_of_address.len() > self.limit
            && let Some((_, oldest)) = connections_of_address.pop_first()
        {
            oldest.notify_one();
        }
        position
    }

    fn remove_silent(&self, address: IpAddr, position: u64) {
        let mut silent = self.silent.lock();
        if let Some(connections_of_address) = silent.by_address.get_mut(&address) {
            connections_of_address.remove(&position);
            if connections_of_address.is_empty() {
                silent.by_address.remove(&address);
            }
        }
    }
}

impl TrackedConnection {
    /// Records that a request arrived.
    pub(crate) fn mark_request_started(&self) {
        self.set_state(State::InRequest);
    }

    /// Records a valid token. The connection is not counted any more.
    pub(crate) fn mark_authenticated(&self) {
        self.set_state(State::Authenticated);
    }

    /// Records that a response was sent.
    pub(crate) fn mark_request_finished(&self) {
        let mut state = self.state.lock();
        if matches!(*state, State::InRequest) {
            *state = State::Silent(self.connections.add_silent(self.address, &self.close));
        }
    }

    fn set_state(&self, next: State) {
        let mut state = self.state.lock();
        if matches!(*state, State::Authenticated) {
            return;
        }
        let before = std::mem::replace(&mut *state, next);
        drop(state);
        if let State::Silent(position) = before {
            self.connections.remove_silent(self.address, position);
        }
    }

    /// Waits until the connection must close in favour of another one of the same address.
    pub(crate) async fn wait_for_eviction(&self) {
        self.close.notified().await;
    }
}

impl Drop for TrackedConnection {
    fn drop(&mut self) {
        // This removes the connection from the silent ones.
        self.set_state(State::Authenticated);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_closed(connection: &TrackedConnection) -> bool {
        use std::task::{Context, Waker};
        let close = std::pin::pin!(connection.close.notified());
        close
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_ready()
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn beyond_the_limit_the_longest_silent_connection_is_closed() {
        let connections = UnauthenticatedConnections::new(2);
        let address_a = address("192.0.2.1");
        let [first, second, third] = [0; 3].map(|_| connections.add(address_a));
        assert!(is_closed(&first) && !is_closed(&second) && !is_closed(&third));
        assert!(
            !is_closed(&connections.add(address("192.0.2.2"))),
            "another address"
        );
        drop((first, third));
        let _fourth = connections.add(address_a);
        assert!(!is_closed(&second), "the limit was not reached");
        drop(second);
    }

    #[test]
    fn connections_with_requests_or_tokens_are_not_closed() {
        let connections = UnauthenticatedConnections::new(1);
        let address_a = address("192.0.2.1");
        let (requesting, authenticated) = (connections.add(address_a), connections.add(address_a));
        assert!(is_closed(&requesting));
        requesting.mark_request_started();
        authenticated.mark_request_started();
        authenticated.mark_authenticated();
        let others: Vec<_> = (0..9).map(|_| connections.add(address_a)).collect();
        assert!(!is_closed(&requesting) && !is_closed(&authenticated));
        authenticated.mark_request_finished();
        requesting.mark_request_finished();
        assert!(
            is_closed(&others[8]),
            "the connection that was silent before"
        );
        let _next = connections.add(address_a);
        assert!(is_closed(&requesting) && !is_closed(&authenticated));
    }

    #[test]
    fn closed_connections_leave_no_entry() {
        let connections = UnauthenticatedConnections::new(1);
        let connections_of_all: Vec<_> = (1..200_u8)
            .map(|number| connections.add(IpAddr::from([192, 0, 2, number])))
            .collect();
        drop(connections_of_all);
        assert!(connections.silent.lock().by_address.is_empty());
    }

    #[test]
    fn ipv6_addresses_of_one_network_count_as_one() {
        let same_network =
            |one, other| client_network(address(one)) == client_network(address(other));
        assert!(same_network("2001:db8::1", "2001:db8::ffff:0:0:1"));
        assert!(!same_network("2001:db8::1", "2001:db8:0:1::1"));
        assert!(same_network("::ffff:192.0.2.1", "192.0.2.1"));
        assert!(!same_network("192.0.2.1", "192.0.2.2"));
    }
}
