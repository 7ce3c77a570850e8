//! Connections of whom we know nothing yet, by address (S27).
//!
//! Thousands of agents may share an address, so those that have shown a good token are not
//! counted. Of the others an address may have so many that say nothing; who comes beyond that is
//! let in, and the one that has been silent longest goes. So a crowd that only comes and stays
//! makes room for its own, and whoever shares its address and asks is heard.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// What counts as one address: of IPv6 what one customer is given, a network of 64 bits.
pub(crate) fn neighbourhood(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(
            address.to_bits() & !u128::from(u64::MAX),
        )),
        four @ IpAddr::V4(_) => four,
    }
}

/// Those of one server.
pub(crate) struct Strangers {
    most: usize,
    silent: Mutex<Silent>,
}

#[derive(Default)]
struct Silent {
    /// In the order in which they fell silent.
    by_address: HashMap<IpAddr, BTreeMap<u64, Arc<Notify>>>,
    seats: u64,
}

/// One connection.
pub(crate) struct Visitor {
    strangers: Arc<Strangers>,
    address: IpAddr,
    standing: Mutex<Standing>,
    leave: Arc<Notify>,
}

#[derive(Clone, Copy)]
enum Standing {
    Silent(u64),
    Asking,
    Known,
}

impl Strangers {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most: most.max(1),
            silent: Mutex::default(),
        })
    }

    /// Somebody comes in, who has said nothing yet.
    pub(crate) fn enter(self: &Arc<Self>, address: IpAddr) -> Arc<Visitor> {
        let address = neighbourhood(address);
        let leave = Arc::new(Notify::new());
        let seat = self.seat(address, &leave);
        Arc::new(Visitor {
            strangers: Arc::clone(self),
            address,
            standing: Mutex::new(Standing::Silent(seat)),
            leave,
        })
    }

    fn seat(&self, address: IpAddr, leave: &Arc<Notify>) -> u64 {
        let mut silent = self.silent.lock();
        silent.seats += 1;
        let seat = silent.seats;
        let seats = silent.by_address.entry(address).or_default();
        seats.insert(seat, Arc::clone(leave));
        if seats.len() > self.most
            && let Some((_, longest)) = seats.pop_first()
        {
            longest.notify_one();
        }
        seat
    }

    fn leave(&self, address: IpAddr, seat: u64) {
        let mut silent = self.silent.lock();
        if let Some(seats) = silent.by_address.get_mut(&address) {
            seats.remove(&seat);
            if seats.is_empty() {
                silent.by_address.remove(&address);
            }
        }
    }
}

impl Visitor {
    /// A request has come.
    pub(crate) fn asks(&self) {
        self.now(Standing::Asking);
    }

    /// Its request came with a good token: from now on it is counted nowhere.
    pub(crate) fn is_known(&self) {
        self.now(Standing::Known);
    }

    /// It has its answer.
    pub(crate) fn falls_silent(&self) {
        let mut standing = self.standing.lock();
        if matches!(*standing, Standing::Asking) {
            *standing = Standing::Silent(self.strangers.seat(self.address, &self.leave));
        }
    }

    fn now(&self, next: Standing) {
        let mut standing = self.standing.lock();
        if matches!(*standing, Standing::Known) {
            return;
        }
        let before = std::mem::replace(&mut *standing, next);
        drop(standing);
        if let Standing::Silent(seat) = before {
            self.strangers.leave(self.address, seat);
        }
    }

    /// Ends when it has to make room for others of its address.
    pub(crate) async fn sent_away(&self) {
        self.leave.notified().await;
    }
}

impl Drop for Visitor {
    fn drop(&mut self) {
        self.now(Standing::Known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goes(visitor: &Visitor) -> bool {
        use std::task::{Context, Waker};
        let leave = std::pin::pin!(visitor.leave.notified());
        leave
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_ready()
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn s27_of_too_many_silent_strangers_the_longest_silent_goes() {
        let strangers = Strangers::new(2);
        let far = address("192.0.2.1");
        let [first, second, third] = [0; 3].map(|_| strangers.enter(far));
        assert!(goes(&first) && !goes(&second) && !goes(&third));
        assert!(!goes(&strangers.enter(address("192.0.2.2"))), "another one");
        drop((first, third));
        let _fourth = strangers.enter(far);
        assert!(!goes(&second), "there was room");
        drop(second);
    }

    #[test]
    fn s27_who_asks_or_is_known_is_not_sent_away() {
        let strangers = Strangers::new(1);
        let far = address("192.0.2.1");
        let (asking, known) = (strangers.enter(far), strangers.enter(far));
        assert!(goes(&asking));
        asking.asks();
        known.asks();
        known.is_known();
        let crowd: Vec<_> = (0..9).map(|_| strangers.enter(far)).collect();
        assert!(!goes(&asking) && !goes(&known));
        known.falls_silent();
        asking.falls_silent();
        assert!(goes(&crowd[8]), "the one who was silent before");
        let _next = strangers.enter(far);
        assert!(goes(&asking) && !goes(&known));
    }

    #[test]
    fn i25_nothing_is_kept_of_who_is_gone() {
        let strangers = Strangers::new(1);
        let visitors: Vec<_> = (1..200_u8)
            .map(|number| strangers.enter(IpAddr::from([192, 0, 2, number])))
            .collect();
        drop(visitors);
        assert!(strangers.silent.lock().by_address.is_empty());
    }

    #[test]
    fn what_is_one_address() {
        let same = |one, other| neighbourhood(address(one)) == neighbourhood(address(other));
        assert!(same("2001:db8::1", "2001:db8::ffff:0:0:1"));
        assert!(!same("2001:db8::1", "2001:db8:0:1::1"));
        assert!(same("::ffff:192.0.2.1", "192.0.2.1"));
        assert!(!same("192.0.2.1", "192.0.2.2"));
    }
}
