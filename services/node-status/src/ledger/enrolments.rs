//! Permissions for agents to fetch their first token (S8): a secret is stored as its digest, good
//! for one node, once, for a quarter of an hour.
//!
//! Asked again with the same key, there is still one enrolment. Its secret cannot be told a second
//! time, because it is nowhere, so it is replaced: the older one, used or not, is dead.

use std::collections::{BTreeMap, BTreeSet};

use hayward_vocabulary::{NodeName, Size, Timestamp};

use crate::error::Refusal;
use crate::store::Rows;

/// How long a secret is good.
pub const LIFE_MS: u64 = 15 * 60 * 1000;
/// How long a key is recognised (A4).
const KEPT_MS: u64 = 24 * 60 * 60 * 1000;

/// Who asked, and the key they asked with.
pub type Key = (String, String);

/// What a node may claim (S14, S15).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    /// What is zero in it is not limited.
    pub most: Size,
    /// Absent: any.
    pub pool: Option<String>,
}

impl Bounds {
    /// None where nothing is bounded.
    pub fn of(most: Option<Size>, pool: Option<String>) -> Option<Self> {
        let bounded = most.is_some() || pool.is_some();
        bounded.then(|| Self {
            most: most.unwrap_or_default(),
            pool,
        })
    }

    /// Whether the node may say that it is in this pool: exactly this name (S5).
    pub fn admits(&self, pool: &str) -> bool {
        self.pool.as_ref().is_none_or(|own| own == pool)
    }
}

/// A request for an enrolment, with the digest of a secret its caller made up.
#[derive(Debug, Clone)]
pub struct Asked {
    pub principal: String,
    pub key: String,
    pub request_digest: [u8; 32],
    pub node: NodeName,
    pub bounds: Option<Bounds>,
    pub secret_digest: [u8; 32],
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enrolment {
    pub request_digest: Vec<u8>,
    pub node: NodeName,
    pub bounds: Option<Bounds>,
    pub secret_digest: Vec<u8>,
    pub created: Timestamp,
    pub expires: Timestamp,
    pub used: bool,
}

#[derive(Clone, Default)]
pub struct Enrolments {
    kept: BTreeMap<Key, Enrolment>,
    of_node: BTreeMap<NodeName, BTreeSet<Key>>,
    by_age: BTreeSet<(Timestamp, Key)>,
}

impl Enrolments {
    pub fn insert(&mut self, key: Key, enrolment: Enrolment) {
        self.drop_key(&key);
        self.of_node
            .entry(enrolment.node.clone())
            .or_default()
            .insert(key.clone());
        self.by_age.insert((enrolment.created, key.clone()));
        self.kept.insert(key, enrolment);
    }

    fn drop_key(&mut self, key: &Key) {
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

    #[test]
    fn s14_a_pool_is_bound_by_its_whole_name() {
        let gpu = Bounds::of(None, Some("gpu".into())).unwrap();
        assert!(gpu.admits("gpu") && !gpu.admits("gpu2") && !gpu.admits("default"));
        let any = Bounds::of(Some(Size::memory(1)), None).unwrap();
        assert!(any.admits("gpu") && Bounds::of(None, None).is_none());
    }

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
