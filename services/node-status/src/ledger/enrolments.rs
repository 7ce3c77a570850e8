//! Enrolments: permissions for agents to fetch their first token. A secret is valid once, for one
//! node and a quarter of an hour. Only its digest is stored (S8).
//!
//! A repeated request gets a new secret, because the first one is not stored and cannot be returned
//! again. The older secret becomes invalid.

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::{NodeName, Timestamp};

use crate::error::Refusal;
use crate::model::{ClaimLimits, Enrolment, EnrolmentKey, NewEnrolment};
use crate::store::Rows;

/// Milliseconds for which a secret is valid.
pub const SECRET_LIFETIME_MS: u64 = 15 * 60 * 1000;
/// Milliseconds for which an idempotency key is stored (A4).
const KEY_RETENTION_MS: u64 = 24 * 60 * 60 * 1000;

#[derive(Clone, Default)]
pub struct Enrolments {
    /// All enrolments, by idempotency key. The other maps are indices into this one.
    all: BTreeMap<EnrolmentKey, Enrolment>,
    by_node: BTreeMap<NodeName, BTreeSet<EnrolmentKey>>,
    by_age: BTreeSet<(Timestamp, EnrolmentKey)>,
}

impl FromIterator<(EnrolmentKey, Enrolment)> for Enrolments {
    fn from_iter<I: IntoIterator<Item = (EnrolmentKey, Enrolment)>>(stored: I) -> Self {
        let mut enrolments = Self::default();
        for (key, enrolment) in stored {
            enrolments.insert(key, enrolment);
        }
        enrolments
    }
}

impl Enrolments {
    fn insert(&mut self, key: EnrolmentKey, enrolment: Enrolment) {
        self.remove(&key);
        self.by_node
            .entry(enrolment.node.clone())
            .or_default()
            .insert(key.clone());
        self.by_age.insert((enrolment.created, key.clone()));
        self.all.insert(key, enrolment);
    }

    fn remove(&mut self, key: &EnrolmentKey) {
        let Some(old) = self.all.remove(key) else {
            return;
        };
        self.by_age.remove(&(old.created, key.clone()));
        if let Some(keys) = self.by_node.get_mut(&old.node) {
            keys.remove(key);
            if keys.is_empty() {
                self.by_node.remove(&old.node);
            }
        }
    }

    /// Stores an enrolment. Returns the time at which its secret expires.
    pub fn enrol(
        &mut self,
        new: NewEnrolment,
        now: Timestamp,
        rows: &mut Rows,
    ) -> Result<Timestamp, Refusal> {
        self.remove_expired_keys(now, rows);
        let key = (new.principal, new.key);
        if self
            .all
            .get(&key)
            .is_some_and(|old| old.request_digest != new.request_digest)
        {
            return Err(Refusal::KeyUsedBefore);
        }
        let enrolment = Enrolment {
            request_digest: new.request_digest.to_vec(),
            node: new.node,
            claim_limits: new.claim_limits,
            secret_digest: new.secret_digest.to_vec(),
            created: now,
            expires: now.plus_ms(SECRET_LIFETIME_MS),
            used: false,
        };
        rows.enrolments.insert(key.clone(), enrolment.clone());
        self.insert(key, enrolment);
        Ok(now.plus_ms(SECRET_LIFETIME_MS))
    }

    /// Redeems a secret and returns the limits of its enrolment. Each comparison takes constant
    /// time, so that the duration reveals nothing about a secret.
    pub fn redeem(
        &mut self,
        node: &NodeName,
        secret_digest: &[u8; 32],
        now: Timestamp,
        rows: &mut Rows,
    ) -> Result<Option<ClaimLimits>, Refusal> {
        let mut matching = None;
        for key in self.by_node.get(node).into_iter().flatten() {
            let Some(enrolment) = self.all.get(key) else {
                continue;
            };
            let matches = is_equal_in_constant_time(&enrolment.secret_digest, secret_digest);
            // All enrolments are compared, even after a match.
            if matches && !enrolment.used && now < enrolment.expires {
                matching = Some(key.clone());
            }
        }
        let key = matching.ok_or(Refusal::InvalidSecret)?;
        let enrolment = self.all.get_mut(&key).ok_or(Refusal::InvalidSecret)?;
        enrolment.used = true;
        rows.enrolments.insert(key, enrolment.clone());
        Ok(enrolment.claim_limits.clone())
    }

    fn remove_expired_keys(&mut self, now: Timestamp, rows: &mut Rows) {
        while let Some((created, key)) = self.by_age.first().cloned() {
            if now.ms_since(created) <= KEY_RETENTION_MS {
                return;
            }
            self.remove(&key);
            rows.removed_enrolments.push(key);
        }
    }
}

fn is_equal_in_constant_time(one: &[u8], other: &[u8]) -> bool {
    let difference = one
        .iter()
        .zip(other)
        .fold(0, |difference, (a, b)| difference | (a ^ b));
    one.len() == other.len() && std::hint::black_box(difference) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enrolment(key: &str, secret: u8) -> NewEnrolment {
        NewEnrolment {
            principal: "ann".into(),
            key: key.into(),
            request_digest: [0; 32],
            node: NodeName::new("n1").unwrap(),
            claim_limits: None,
            secret_digest: [secret; 32],
        }
    }

    #[test]
    fn a_secret_is_valid_once_for_its_node_until_it_expires() {
        let node = NodeName::new("n1").unwrap();
        let now = Timestamp::from_unix_ms(1_000);
        let (mut enrolments, mut rows) = (Enrolments::default(), Rows::default());
        let expires = enrolments.enrol(enrolment("k", 7), now, &mut rows).unwrap();
        let other = NodeName::new("n2").unwrap();
        assert_eq!(
            enrolments.redeem(&other, &[7; 32], now, &mut rows),
            Err(Refusal::InvalidSecret)
        );
        assert_eq!(
            enrolments.redeem(&node, &[8; 32], now, &mut rows),
            Err(Refusal::InvalidSecret)
        );
        assert_eq!(
            enrolments.redeem(&node, &[7; 32], expires, &mut rows),
            Err(Refusal::InvalidSecret)
        );
        assert_eq!(enrolments.redeem(&node, &[7; 32], now, &mut rows), Ok(None));
        assert_eq!(
            enrolments.redeem(&node, &[7; 32], now, &mut rows),
            Err(Refusal::InvalidSecret)
        );
    }

    #[test]
    fn a_repeated_request_leaves_one_valid_secret() {
        let node = NodeName::new("n1").unwrap();
        let now = Timestamp::from_unix_ms(1_000);
        let (mut enrolments, mut rows) = (Enrolments::default(), Rows::default());
        enrolments.enrol(enrolment("k", 1), now, &mut rows).unwrap();
        enrolments.enrol(enrolment("k", 2), now, &mut rows).unwrap();
        assert_eq!(
            enrolments.redeem(&node, &[1; 32], now, &mut rows),
            Err(Refusal::InvalidSecret)
        );
        assert_eq!(enrolments.redeem(&node, &[2; 32], now, &mut rows), Ok(None));
        let other = NewEnrolment {
            request_digest: [9; 32],
            ..enrolment("k", 3)
        };
        assert_eq!(
            enrolments.enrol(other, now, &mut rows),
            Err(Refusal::KeyUsedBefore)
        );
    }

    #[test]
    fn keys_are_removed_after_a_day() {
        let now = Timestamp::from_unix_ms(1_000);
        let (mut enrolments, mut rows) = (Enrolments::default(), Rows::default());
        enrolments.enrol(enrolment("k", 1), now, &mut rows).unwrap();
        enrolments
            .enrol(
                enrolment("l", 2),
                now.plus_ms(KEY_RETENTION_MS + 1),
                &mut rows,
            )
            .unwrap();
        assert_eq!(enrolments.all.len(), 1);
        assert_eq!(
            rows.removed_enrolments,
            [("ann".to_owned(), "k".to_owned())]
        );
    }
}
