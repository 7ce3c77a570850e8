//! Idempotency keys and their responses in memory, bounded in number and age (A4).

use std::collections::VecDeque;
use std::sync::Arc;

use hayward_vocabulary::Timestamp;
use rustc_hash::FxHashMap;
use uuid::Uuid;

use crate::command::RequestKey;
use crate::store::idempotency_keys::KeyRow;

/// Time for which a key is stored.
pub const RETENTION_MS: i64 = 24 * 3600 * 1000;
/// Maximum number of keys deleted per round.
const MAX_SWEPT: usize = 2_000;

#[derive(Default)]
pub struct IdempotencyKeys {
    /// Digest of the request and its response, by key.
    responses: FxHashMap<Uuid, (Uuid, Arc<str>)>,
    /// Insertion time in ms and key, oldest first.
    by_age: VecDeque<(i64, Uuid)>,
}

/// State of a key.
pub enum KeyState {
    New,
    SameRequest(Arc<str>),
    OtherRequest,
}

impl IdempotencyKeys {
    pub fn lookup(&self, request_key: RequestKey) -> KeyState {
        match self.responses.get(&request_key.key) {
            None => KeyState::New,
            Some((request, response)) if *request == request_key.request => {
                KeyState::SameRequest(response.clone())
            }
            Some(_) => KeyState::OtherRequest,
        }
    }

    pub fn restore(&mut self, row: KeyRow) {
        self.by_age.push_back((row.at_ms, row.key));
        self.responses
            .insert(row.key, (row.request, row.answer.into()));
    }

    pub fn insert(
        &mut self,
        request_key: RequestKey,
        at: Timestamp,
        response: &Arc<str>,
    ) -> KeyRow {
        self.by_age.push_back((at.unix_ms(), request_key.key));
        self.responses
            .insert(request_key.key, (request_key.request, response.clone()));
        KeyRow {
            key: request_key.key,
            request: request_key.request,
            at_ms: at.unix_ms(),
            answer: response.to_string(),
        }
    }

    pub fn len(&self) -> usize {
        self.responses.len()
    }

    /// Removes keys beyond the limits of age and number, at most 2,000 per call.
    pub fn sweep(&mut self, now: Timestamp, limit: usize) -> Vec<Uuid> {
        let mut removed = Vec::new();
        while removed.len() < MAX_SWEPT
            && let Some((at, key)) = self.by_age.front().copied()
            && (self.responses.len() > limit || at < now.unix_ms() - RETENTION_MS)
        {
            self.by_age.pop_front();
            self.responses.remove(&key);
            removed.push(key);
        }
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_known_for_a_day_within_the_limit() {
        let mut keys = IdempotencyKeys::default();
        let request_key = |number| RequestKey {
            key: Uuid::from_u128(number),
            request: Uuid::nil(),
        };
        let start = Timestamp::from_unix_ms(0);
        for number in 0..3 {
            keys.insert(request_key(number), start, &"{}".into());
        }
        assert!(matches!(
            keys.lookup(request_key(0)),
            KeyState::SameRequest(_)
        ));
        let other = RequestKey {
            request: Uuid::max(),
            ..request_key(0)
        };
        assert!(matches!(keys.lookup(other), KeyState::OtherRequest));
        assert_eq!(keys.sweep(start, 2), [Uuid::from_u128(0)]);
        assert!(matches!(keys.lookup(request_key(0)), KeyState::New));
        assert!(keys.sweep(start.plus_ms(24 * 3600 * 1000), 2).is_empty());
        assert_eq!(keys.sweep(start.plus_ms(24 * 3600 * 1000 + 1), 2).len(), 2);
    }
}
