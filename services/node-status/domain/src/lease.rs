//! W7, I4: how long exclusive work may still run on a node that is heard no more, and from when on
//! its successor may start. The node counts its lease from when its heartbeat left and so ends
//! earlier than is said here, never later.

use crate::health::{Limits, given_up_at};

/// What of it is not said by the last heartbeat.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Mercy {
    /// Its pool has the brake on (B1).
    pub braked: bool,
    /// It is not given up before (B2).
    pub spared_until_ms: u64,
    /// It is given up.
    pub lost: bool,
}

/// If no other heartbeat comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tenure {
    /// From then on no exclusive work runs there.
    pub ends_ms: u64,
    /// From then on the node is given up, and a successor may start; nobody can tell while the
    /// brake is on.
    pub given_up_ms: Option<u64>,
}

/// Of a node that was last heard at `since_ms`, or not since this watch began then.
pub fn tenure(since_ms: u64, lease_ms: u64, limits: Limits, mercy: Mercy) -> Tenure {
    let at = given_up_at(since_ms, limits, mercy.spared_until_ms);
    Tenure {
        ends_ms: since_ms.saturating_add(lease_ms),
        given_up_ms: if mercy.lost {
            Some(since_ms)
        } else {
            (!mercy.braked).then_some(at)
        },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::health::{Health, Record, judge};

    const LIMITS: Limits = Limits {
        suspect_ms: 15_000,
        lost_ms: 60_000,
    };

    proptest! {
        /// The judge gives a silent node up exactly when it is said, and after its lease.
        #[test]
        fn w_7_what_is_said_is_what_the_judge_does(
            since in 0..100_000_u64, spared_until_ms in 0..300_000_u64, braked: bool,
        ) {
            let mercy = Mercy { braked, spared_until_ms, lost: false };
            let said = tenure(since, 45_000, LIMITS, mercy);
            let health = |now| {
                let record = Record {
                    before: Health::Suspect,
                    watched_since_ms: 0,
                    heard_ms: Some(since),
                    quiesced: None,
                    twins: false,
                    braked,
                    spared_until_ms,
                    flaps: 0,
                    limits: LIMITS,
                };
                judge(&record, now).health
            };
            match said.given_up_ms {
                None => prop_assert_eq!(health(since + 10_000_000), Health::Suspect),
                Some(at) => {
                    prop_assert!(said.ends_ms < at);
                    prop_assert_eq!(health(at - 1), if at - 1 < since + 15_000 {
                        Health::Healthy
                    } else {
                        Health::Suspect
                    });
                    prop_assert_eq!(health(at), Health::Lost);
                }
            }
        }
    }
}
