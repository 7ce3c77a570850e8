//! Permissions for agents to fetch their first token (S8): a secret is stored as its digest, good
//! for one node, once, for a quarter of an hour.
//!
//! Asked again with the same key, there is still one enrolment. Its secret cannot be told a second
//! time, because it is nowhere, so it is replaced: the older one, used or not, is dead.

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::{NodeName, Timestamp};

use crate::error::Refusal;
use crate::model::{Asked, Bounds, Enrolment, EnrolmentKey};
use crate::store::Rows;

/// How long a secret is good.
pub const LIFE_MS: u64 = 15 * 60 * 1000;
/// How long a key is recognised (A4).
const KEPT_MS: u64 = 24 * 60 * 60 * 1000;

#[derive(Clone, Default)]
pub struct Enrolments {
    kept: BTreeMap<EnrolmentKey, Enrolment>,
    of_node: BTreeMap<NodeName, BTreeSet<EnrolmentKey>>,
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
        self.drop_key(&key);
        self.of_node
            .entry(enrolment.node.clone())
            .or_default()
            .insert(key.clone());
        self.by_age.insert((enrolment.created, key.clone()));
        self.kept.insert(key, enrolment);
    }

    fn drop_key(&mut self, key: &EnrolmentKey) {
        let Some(old) = self.kept.remove(key) else {
            return;
        };
        self.by_age.remove(&(old.created, key.clone()));
        if let Some(keys) = self.of_node.get_mut(&old.node) {
            keys.remove(key);
            if keys.is_empty() {
                self.of_node.remove(&old.node);
            }
        }
    }

    pub fn enrol(
        &mut self,
        asked: Asked,
        now: Timestamp,
        rows: &mut Rows,
    ) -> Result<Timestamp, Refusal> {
        self.forget(now, rows);
        let key = (asked.principal, asked.key);
        if self
            .kept
            .get(&key)
            .is_some_and(|old| old.request_digest != asked.request_digest)
        {
            return Err(Refusal::KeyUsedBefore);
        }
        let enrolment = Enrolment {
            request_digest: asked.request_digest.to_vec(),
            node: asked.node,
            bounds: asked.bounds,
            secret_digest: asked.secret_digest.to_vec(),
            created: now,
            expires: now.plus_ms(LIFE_MS),
            used: false,
        };
        rows.enrolments.insert(key.clone(), enrolment.clone());
        self.insert(key, enrolment);
        Ok(now.plus_ms(LIFE_MS))
    }

    /// Every live secret of the node is compared, in a time that does not depend on how much of it
    /// is right. Returns what the node may claim.
    pub fn redeem(
        &mut self,
        node: &NodeName,
        secret_digest: &[u8; 32],
        now: Timestamp,
        rows: &mut Rows,
    ) -> Result<Option<Bounds>, Refusal> {
        let mut found = None;
        for key in self.of_node.get(node).into_iter().flatten() {
            let Some(enrolment) = self.kept.get(key) else {
                continue;
            };
            let good = same(&enrolment.secret_digest, secret_digest);
            if good && !enrolment.used && now < enrolment.expires {
                found = Some(key.clone());
            }
        }
        let key = found.ok_or(Refusal::BadSecret)?;
        let enrolment = self.kept.get_mut(&key).ok_or(Refusal::BadSecret)?;
        enrolment.used = true;
        rows.enrolments.insert(key, enrolment.clone());
        Ok(enrolment.bounds.clone())
    }

    fn forget(&mut self, now: Timestamp, rows: &mut Rows) {
        while let Some((created, key)) = self.by_age.first().cloned() {
            if now.ms_since(created) <= KEPT_MS {
                return;
            }
            self.drop_key(&key);
            rows.forgotten_enrolments.push(key);
        }
    }
}

fn same(one: &[u8], other: &[u8]) -> bool {
    let differs = one
        .iter()
        .zip(other)
        .fold(0, |differs, (a, b)| differs | (a ^ b));
    one.len() == other.len() && std::hint::black_box(differs) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(key: &str, secret: u8) -> Asked {
        Asked {
            principal: "ann".into(),
            key: key.into(),
            request_digest: [0; 32],
            node: NodeName::new("n1").unwrap(),
            bounds: None,
            secret_digest: [secret; 32],
        }
    }

    #[test]
    fn a_secret_is_good_once_for_its_node_and_its_time() {
        let node = NodeName::new("n1").unwrap();
        let now = Timestamp::from_unix_ms(1_000);
        let (mut all, mut rows) = (Enrolments::default(), Rows::default());
        let expires = all.enrol(asked("k", 7), now, &mut rows).unwrap();
        let other = NodeName::new("n2").unwrap();
        assert_eq!(
            all.redeem(&other, &[7; 32], now, &mut rows),
            Err(Refusal::BadSecret)
        );
        assert_eq!(
            all.redeem(&node, &[8; 32], now, &mut rows),
            Err(Refusal::BadSecret)
        );
        assert_eq!(
            all.redeem(&node, &[7; 32], expires, &mut rows),
            Err(Refusal::BadSecret)
        );
        assert_eq!(all.redeem(&node, &[7; 32], now, &mut rows), Ok(None));
        assert_eq!(
            all.redeem(&node, &[7; 32], now, &mut rows),
            Err(Refusal::BadSecret)
        );
    }

    #[test]
    fn asking_again_leaves_one_good_secret() {
        let node = NodeName::new("n1").unwrap();
        let now = Timestamp::from_unix_ms(1_000);
        let (mut all, mut rows) = (Enrolments::default(), Rows::default());
        all.enrol(asked("k", 1), now, &mut rows).unwrap();
        all.enrol(asked("k", 2), now, &mut rows).unwrap();
        assert_eq!(
            all.redeem(&node, &[1; 32], now, &mut rows),
            Err(Refusal::BadSecret)
        );
        assert_eq!(all.redeem(&node, &[2; 32], now, &mut rows), Ok(None));
        let other = Asked {
            request_digest: [9; 32],
            ..asked("k", 3)
        };
        assert_eq!(
            all.enrol(other, now, &mut rows),
            Err(Refusal::KeyUsedBefore)
        );
    }

    #[test]
    fn keys_are_forgotten_after_a_day() {
        let now = Timestamp::from_unix_ms(1_000);
        let (mut all, mut rows) = (Enrolments::default(), Rows::default());
        all.enrol(asked("k", 1), now, &mut rows).unwrap();
        all.enrol(asked("l", 2), now.plus_ms(KEPT_MS + 1), &mut rows)
            .unwrap();
        assert_eq!(all.kept.len(), 1);
        assert_eq!(
            rows.forgotten_enrolments,
            [("ann".to_owned(), "k".to_owned())]
        );
    }
}
